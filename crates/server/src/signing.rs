//! Private keys that sign cards and webhooks, their public key set, and the signatures of known cards.

use std::{
    collections::HashMap,
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, Signature,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use blake3::Hash;
use herald_protocol::{
    AgentCard, Dialect,
    card::{
        AgentCardSignature,
        signature::{ProtectedHeader, signatures},
    },
    locks::lock,
};
use serde::Serialize;

/// The path of the key set, below the URL of the server or of an agent.
pub(crate) const KEY_SET: &str = "/.well-known/jwks.json";
/// The label of a private key in PEM.
const PRIVATE_KEY: &str = "PRIVATE KEY";
/// Cards whose signatures are kept. Each agent has a few; more come from made-up host names.
const KNOWN_CARDS: usize = 1024;

/// A private key that signs cards or webhooks, with the id that signatures of cards name.
///
/// In a file it is PKCS#8 in PEM: a key on the curve P-256, for ES256, or Ed25519, for EdDSA. The name of the
/// file without its extension is the id.
pub struct SigningKey {
    id: String,
    pair: SigningPair,
}

enum SigningPair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

impl SigningPair {
    fn read(text: &[u8]) -> Result<Self, SigningKeyError> {
        let key = pem::parse(text).ok().filter(|key| key.tag() == PRIVATE_KEY);
        let key = key.ok_or(SigningKeyError::Content)?;
        match EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.contents()) {
            Ok(pair) => Ok(Self::Es256(pair)),
            Err(_) => {
                let pair = Ed25519KeyPair::from_pkcs8(key.contents());
                pair.map(Self::EdDsa).map_err(|_| SigningKeyError::Content)
            }
        }
    }
}

/// Writes a private key to a new file, readable by its owner only.
fn write_new(path: &Path, key: &[u8]) -> io::Result<()> {
    let mut options = fs::File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(pem::encode(&pem::Pem::new(PRIVATE_KEY, key)).as_bytes())?;
    file.sync_all()
}

/// Errors of signing keys.
#[derive(Debug, thiserror::Error)]
pub enum SigningKeyError {
    /// The file cannot be read or written.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The content is not a private key of a known kind.
    #[error(
        "it is not a private key for ES256 or EdDSA in PEM (PKCS#8); make one with: openssl genpkey \
         -algorithm EC -pkeyopt ec_paramgen_curve:P-256"
    )]
    Content,
    /// The name of the file is no id of a key.
    #[error("the name of the file is the id of the key: use letters, digits, '.', '_' and '-'")]
    Id,
    /// No key could be generated.
    #[error("no key could be generated")]
    Generate,
}

impl SigningKey {
    /// Generates a key for ES256 and writes it to `ID.pem` in a directory, readable by its owner only. A
    /// file that exists is kept and is an error.
    pub fn create(directory: &Path, id: &str) -> Result<PathBuf, SigningKeyError> {
        check_id(id)?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let key = key.map_err(|_| SigningKeyError::Generate)?;
        let path = directory.join(format!("{id}.pem"));
        write_new(&path, key.as_ref())?;
        Ok(path)
    }

    /// Reads the Ed25519 key in a file, or generates one and writes it to the file, readable by its owner only.
    /// Its id is made from its public key.
    pub fn read_or_create_ed25519(path: &Path) -> Result<Self, SigningKeyError> {
        match fs::read(path) {
            Ok(text) => return Self::from_pem(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let key = key.map_err(|_| SigningKeyError::Generate)?;
        write_new(path, key.as_ref())?;
        Self::from_pem(&fs::read(path)?)
    }

    /// Generates an Ed25519 key that is lost with the process. Its id is made from its public key.
    pub fn generate_ed25519() -> Result<Self, SigningKeyError> {
        let pair = Ed25519KeyPair::generate().map_err(|_| SigningKeyError::Generate)?;
        Ok(Self::with_derived_id(SigningPair::EdDsa(pair)))
    }

    /// Reads the key in a file.
    pub fn read(path: &Path) -> Result<Self, SigningKeyError> {
        let id = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        check_id(id)?;
        let pair = SigningPair::read(&fs::read(path)?)?;
        Ok(Self { id: id.to_owned(), pair })
    }

    /// Reads a key in PEM. Its id is made from its public key.
    pub fn from_pem(text: &[u8]) -> Result<Self, SigningKeyError> {
        SigningPair::read(text).map(Self::with_derived_id)
    }

    fn with_derived_id(pair: SigningPair) -> Self {
        let public = match &pair {
            SigningPair::Es256(pair) => pair.public_key().as_ref(),
            SigningPair::EdDsa(pair) => pair.public_key().as_ref(),
        };
        let id = format!("key-{}", &blake3::hash(public).to_hex()[..16]);
        Self { id, pair }
    }

    /// True if the key is an Ed25519 key.
    pub(crate) const fn is_ed25519(&self) -> bool {
        matches!(self.pair, SigningPair::EdDsa(_))
    }

    /// The Ed25519 signature of bytes, if the key can make one.
    pub(crate) fn sign_ed25519(&self, content: &[u8]) -> Option<Signature> {
        match &self.pair {
            SigningPair::Es256(_) => None,
            SigningPair::EdDsa(pair) => Some(pair.sign(content)),
        }
    }

    /// The public key, if it is an Ed25519 key.
    #[cfg(test)]
    pub(crate) fn ed25519_public_key(&self) -> Option<&[u8]> {
        match &self.pair {
            SigningPair::Es256(_) => None,
            SigningPair::EdDsa(pair) => Some(pair.public_key().as_ref()),
        }
    }

    /// The id of the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    const fn algorithm(&self) -> &'static str {
        match self.pair {
            SigningPair::Es256(_) => "ES256",
            SigningPair::EdDsa(_) => "EdDSA",
        }
    }

    /// The signature of an input, base64url.
    fn sign(&self, input: &str) -> String {
        let signature: Signature = match &self.pair {
            SigningPair::Es256(pair) => pair
                .sign(&SystemRandom::new(), input.as_bytes())
                .expect("a key that was read can sign"),
            SigningPair::EdDsa(pair) => pair.sign(input.as_bytes()),
        };
        URL_SAFE_NO_PAD.encode(signature)
    }

    fn public(&self) -> PublicKeyDocument<'_> {
        let (kty, crv, x, y) = match &self.pair {
            SigningPair::Es256(pair) => {
                // The uncompressed form: a byte 4, and both coordinates.
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                ("EC", "P-256", x, Some(y))
            }
            SigningPair::EdDsa(pair) => ("OKP", "Ed25519", pair.public_key().as_ref(), None),
        };
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), y.map(|y| URL_SAFE_NO_PAD.encode(y)));
        PublicKeyDocument { kty, crv, x, y, kid: &self.id, r#use: "sig", alg: self.algorithm() }
    }
}

/// An id is the name of a file, and stands in JSON and in a URL.
fn check_id(id: &str) -> Result<(), SigningKeyError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let valid = (1..=128).contains(&id.len()) && id.bytes().all(plain) && !id.starts_with('.');
    valid.then_some(()).ok_or(SigningKeyError::Id)
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.id).finish()
    }
}

/// A public key as JSON (RFC 7517).
#[derive(Serialize)]
struct PublicKeyDocument<'a> {
    kty: &'static str,
    crv: &'static str,
    x: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    kid: &'a str,
    r#use: &'static str,
    alg: &'static str,
}

#[derive(Serialize)]
struct KeySetDocument<'a> {
    keys: Vec<PublicKeyDocument<'a>>,
}

/// The public keys as a JSON Web Key Set, each id once. `None` without a key.
pub(crate) fn key_set(keys: &[Arc<SigningKey>]) -> Option<Vec<u8>> {
    let mut listed: Vec<PublicKeyDocument<'_>> = Vec::new();
    for key in keys {
        if !listed.iter().any(|known| known.kid == key.id) {
            listed.push(key.public());
        }
    }
    let set = KeySetDocument { keys: listed };
    (!keys.is_empty()).then(|| serde_json::to_vec(&set).expect("a key set has string keys"))
}

/// Signer of the cards of a server.
#[derive(Debug)]
pub(crate) struct CardSigner {
    key: Arc<SigningKey>,
    header: ProtectedHeader,
    /// Signatures by the hash of the unsigned card. A signature costs more than all else of a card.
    known: Mutex<HashMap<Hash, Arc<[AgentCardSignature]>>>,
}

impl CardSigner {
    /// A signer with these keys, if there are any: the first one signs. All are published, so that cards with
    /// signatures of an earlier key can be verified.
    pub(crate) fn new(keys: &[Arc<SigningKey>], jku: Option<String>) -> Option<Self> {
        let key = Arc::clone(keys.first()?);
        let mut header = ProtectedHeader::new(key.algorithm(), key.id());
        header.jku = jku;
        Some(Self { key, header, known: Mutex::default() })
    }

    /// Signs a card, once for each content.
    pub(crate) fn sign(&self, card: &mut AgentCard) {
        let hash = blake3::hash(&Dialect::V1.encode_card(card));
        let known = lock(&self.known).get(&hash).map(Arc::clone);
        let signed = known.unwrap_or_else(|| {
            let signed = signatures(card, &self.header, |input| self.key.sign(input));
            let signed = Arc::<[_]>::from(signed);
            let mut known = lock(&self.known);
            if known.len() >= KNOWN_CARDS {
                known.clear();
            }
            known.insert(hash, Arc::clone(&signed));
            signed
        });
        card.signatures = signed.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_private_kept_and_named_after_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = SigningKey::create(directory.path(), "cards-2026").unwrap();
        assert_eq!(SigningKey::read(&path).unwrap().id(), "cards-2026");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let before = fs::read(&path).unwrap();
        assert!(SigningKey::create(directory.path(), "cards-2026").is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
        for id in ["", "../up", ".hidden", "a b", "ä"] {
            let error = SigningKey::create(directory.path(), id).unwrap_err();
            assert!(matches!(error, SigningKeyError::Id), "{id}");
        }
        let shown = format!("{:?}", SigningKey::read(&path).unwrap());
        assert_eq!(shown, "SigningKey(\"cards-2026\")");
    }

    #[test]
    fn files_without_a_usable_key_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        assert!(matches!(SigningKey::read(&path), Err(SigningKeyError::File(_))));
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        for content in [String::new(), certificate.cert.pem(), other.serialize_pem()] {
            fs::write(&path, content).unwrap();
            assert!(matches!(SigningKey::read(&path), Err(SigningKeyError::Content)));
        }
    }

    #[test]
    fn a_card_is_signed_once_and_the_memory_of_cards_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::read(&SigningKey::create(directory.path(), "k").unwrap()).unwrap();
        let signer = CardSigner::new(&[Arc::new(key)], None).unwrap();
        let card = |name: String| AgentCard { name, ..AgentCard::default() };
        let (mut first, mut again) = (card("a".into()), card("a".into()));
        signer.sign(&mut first);
        signer.sign(&mut again);
        assert_eq!(first, again, "a signature of ES256 is different each time");
        for number in 0..=KNOWN_CARDS {
            signer.sign(&mut card(number.to_string()));
        }
        assert!(lock(&signer.known).len() <= KNOWN_CARDS);
        assert!(CardSigner::new(&[], None).is_none());
    }
}
