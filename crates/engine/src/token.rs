//! Page tokens: a list cursor, bound to the filters of its list and signed against forgery.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use herald_protocol::{Error, Timestamp};

use crate::store::{ListCursor, ListQuery, Scope};

const MAC_BYTES: usize = 16;
const FILTER_BYTES: usize = 8;
const TOKEN_BYTES: usize = 8 + 8 + FILTER_BYTES + MAC_BYTES;

/// The token of `cursor` in the list of `query`.
pub(crate) fn encode(secret: &[u8; 32], query: &ListQuery, cursor: ListCursor) -> String {
    let mut bytes = Vec::with_capacity(TOKEN_BYTES);
    bytes.extend_from_slice(&cursor.changed.as_millis().to_be_bytes());
    bytes.extend_from_slice(&cursor.row.to_be_bytes());
    bytes.extend_from_slice(&filter(query));
    let mac = mac(secret, &bytes);
    bytes.extend_from_slice(&mac);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The cursor of a token. Refuses a token that this store did not sign, or that belongs to another
/// query.
pub(crate) fn decode(
    secret: &[u8; 32],
    query: &ListQuery,
    token: &str,
) -> Result<ListCursor, Error> {
    let invalid = || Error::field("pageToken", "is not a token of this list");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
    let bytes: [u8; TOKEN_BYTES] = bytes.try_into().map_err(|_| invalid())?;
    let (signed, given) = bytes.split_at(TOKEN_BYTES - MAC_BYTES);
    let (numbers, filters) = signed.split_at(16);
    // The comparison of `blake3::Hash` takes constant time.
    let expected = blake3::Hash::from_bytes(widen(&mac(secret, signed)));
    if expected != blake3::Hash::from_bytes(widen(given)) || filters != filter(query) {
        return Err(invalid());
    }
    let number = |at: usize| {
        i64::from_be_bytes(numbers[at..at + 8].try_into().expect("the slice has eight bytes"))
    };
    Ok(ListCursor { changed: Timestamp::from_millis(number(0)), row: number(8) })
}

/// The token of a cursor in another list, which its name and filters identify.
pub(crate) fn seal(secret: &[u8; 32], list: &str, cursor: &str) -> String {
    let mut bytes = mac(secret, &bound(list, cursor)).to_vec();
    bytes.extend_from_slice(cursor.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The cursor of a token of [`seal`]. Refuses a token that this store did not sign, or that belongs to
/// another list.
pub(crate) fn open(secret: &[u8; 32], list: &str, token: &str) -> Result<String, Error> {
    let invalid = || Error::field("page_token", "is not a token of this list");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
    let (given, cursor) = bytes.split_at_checked(MAC_BYTES).ok_or_else(invalid)?;
    let cursor = std::str::from_utf8(cursor).map_err(|_| invalid())?;
    let expected = blake3::Hash::from_bytes(widen(&mac(secret, &bound(list, cursor))));
    if expected == blake3::Hash::from_bytes(widen(given)) {
        Ok(cursor.to_owned())
    } else {
        Err(invalid())
    }
}

/// The signed bytes of a cursor: the name of its list, with its length, and the cursor. The first byte
/// differs from that of every time in a token of [`encode`].
fn bound(list: &str, cursor: &str) -> Vec<u8> {
    let mut bytes = vec![0xff];
    bytes.extend_from_slice(&(list.len() as u64).to_be_bytes());
    bytes.extend_from_slice(list.as_bytes());
    bytes.extend_from_slice(cursor.as_bytes());
    bytes
}

fn mac(secret: &[u8; 32], bytes: &[u8]) -> [u8; MAC_BYTES] {
    let hash = blake3::keyed_hash(secret, bytes);
    hash.as_bytes()[..MAC_BYTES].try_into().expect("a hash is longer than the MAC")
}

fn widen(code: &[u8]) -> [u8; 32] {
    let mut wide = [0; 32];
    wide[..code.len()].copy_from_slice(code);
    wide
}

/// The hash of the scope and all filters, which the token is bound to. The page size may change
/// between pages.
fn filter(query: &ListQuery) -> [u8; FILTER_BYTES] {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    };
    // Each scope adds a different number of texts, so that no two scopes have the same hash.
    match &query.scope {
        Scope::Own(owner) => {
            add(owner.tenant.as_str());
            add(&owner.principal);
        }
        Scope::Tenant(tenant) => add(tenant.as_str()),
        Scope::All => {}
    }
    add(query.agent.as_ref().map_or("", |agent| agent.as_str()));
    add(query.context.as_ref().map_or("", |context| context.as_str()));
    add(query.state.map_or("", |state| state.proto_name()));
    add(&query.since.map(|since| since.to_string()).unwrap_or_default());
    let hash = hasher.finalize();
    hash.as_bytes()[..FILTER_BYTES].try_into().expect("a hash is longer than the prefix")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Owner;

    fn query() -> ListQuery {
        ListQuery {
            scope: Scope::Own(Owner { tenant: "t".into(), principal: "p".into() }),
            agent: None,
            context: None,
            state: None,
            since: None,
            after: None,
            limit: 10,
            artifacts: false,
        }
    }

    #[test]
    fn a_sealed_cursor_belongs_to_its_list() {
        let secret = [7; 32];
        let token = seal(&secret, "keys a", "k-1");
        assert_eq!(open(&secret, "keys a", &token).as_deref(), Ok("k-1"));
        assert!(open(&secret, "keys b", &token).is_err());
        assert!(open(&secret, "keys ", &token).is_err());
        assert!(open(&[8; 32], "keys a", &token).is_err());
        for at in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert!(open(&secret, "keys a", std::str::from_utf8(&forged).unwrap()).is_err());
        }
        assert!(open(&secret, "keys a", "").is_err());
    }

    #[test]
    fn fuzz_only_signed_page_tokens_are_accepted() {
        let secret = [7; 32];
        let cursor = ListCursor { changed: Timestamp::from_millis(1_700_000_000_000), row: 42 };
        let ours = encode(&secret, &query(), cursor);
        assert_eq!(decode(&secret, &query(), &ours), Ok(cursor));
        assert!(decode(&[8; 32], &query(), &ours).is_err());
        bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
            let raw = String::from_utf8_lossy(bytes);
            for token in [raw.into_owned(), URL_SAFE_NO_PAD.encode(bytes)] {
                assert!(token == ours || decode(&secret, &query(), &token).is_err());
            }
        });
        for at in 0..ours.len() {
            let mut forged = ours.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(decode(&secret, &query(), &forged).is_err(), "changed at {at}");
        }
    }
}
