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
