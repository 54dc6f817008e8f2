//! JSON web tokens of an OpenID Connect provider, good ones and forged ones.

use std::time::Duration;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use herald_server::{Jwt, JwtIssuer, JwtScopes, JwtTenant};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Call, message},
    hub::Hub,
    provider::{Provider, Signer, encode, seconds, sign},
};

const NEVER: Duration = Duration::from_secs(3600);

/// The settings of a provider. A download because of an unknown key is always allowed.
fn issuer(provider: &Provider) -> JwtIssuer {
    let tenant = JwtTenant::Claim("tenant".into());
    let issuer = JwtIssuer::new(provider.issuer(), "herald", tenant);
    JwtIssuer { refetch: Duration::ZERO, clock_skew: Duration::ZERO, ..issuer }
}

async fn guarded(issuers: Vec<JwtIssuer>) -> Hub {
    Hub::built(|builder| builder.authenticate(Jwt::new(issuers).unwrap())).await
}

fn with(token: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {token}"))
}

async fn send(hub: &Hub, token: &str) -> Answer {
    hub.call(with(token, Call::rpc("SendMessage", &message("hello")))).await
}

fn changed(mut claims: Value, name: &str, value: Value) -> Value {
    claims[name] = value;
    claims
}

fn without(mut claims: Value, name: &str) -> Value {
    claims.as_object_mut().unwrap().remove(name);
    claims
}

/// The keys of a provider, and what an attacker can know and make.
struct Forge {
    provider: Provider,
    attacker: Provider,
    second: Provider,
    rsa: Signer,
    ec: Signer,
    p384: Signer,
    ed: Signer,
    encryption: Signer,
    shared: EncodingKey,
    own: Signer,
    second_key: Signer,
}

impl Forge {
    async fn start() -> Self {
        let (rsa, ec, p384) = (Signer::rsa("rsa"), Signer::ec("ec"), Signer::p384("p384"));
        let (ed, encryption) = (Signer::ed("ed"), Signer::rsa("encryption"));
        let other = Signer::rsa("other");
        // The attacker's key has the id of the provider's.
        let (own, second_key) = (Signer::rsa("rsa"), Signer::rsa("rsa"));
        let shared = EncodingKey::from_secret(b"a secret that should not be in a key set");
        let attacker = Provider::start(&[&own]).await;
        let second = Provider::start(&[&second_key]).await;
        let provider = Provider::start(&[]).await;
        let mut for_encryption = encryption.jwk();
        for_encryption["use"] = json!("enc");
        let secret = json!({ "kty": "oct", "kid": "secret", "alg": "HS256",
            "k": encode("a secret that should not be in a key set") });
        provider.publish(vec![
            rsa.jwk(),
            ec.jwk(),
            p384.jwk(),
            ed.jwk(),
            other.jwk(),
            for_encryption,
            secret,
        ]);
        Self { provider, attacker, second, rsa, ec, p384, ed, encryption, shared, own, second_key }
    }

    fn issuers(&self) -> Vec<JwtIssuer> {
        let algorithms = vec!["RS256".to_owned(), "ES256".to_owned()];
        let first = JwtIssuer { algorithms, refetch: NEVER, ..issuer(&self.provider) };
        vec![first, JwtIssuer { refetch: NEVER, ..issuer(&self.second) }]
    }

    fn claims(&self) -> Value {
        self.provider.claims()
    }

    /// A token of the provider with another header.
    fn header(&self, name: &str, value: Value) -> String {
        let header = changed(self.rsa.header(), name, value);
        self.rsa.sign(&header.to_string(), &self.claims().to_string())
    }

    /// A token of the provider with other claims.
    fn claim(&self, name: &str, value: Value) -> String {
        self.rsa.token(&changed(self.claims(), name, value))
    }

    /// A token of the attacker's key with an additional header.
    fn smuggled(&self, name: &str, value: Value) -> String {
        let header = changed(self.own.header(), name, value);
        self.own.sign(&header.to_string(), &self.claims().to_string())
    }

    /// A token that is signed with this shared secret.
    fn hmac(&self, algorithm: Algorithm, kid: &str, secret: &[u8]) -> String {
        let header = json!({ "alg": format!("{algorithm:?}"), "typ": "JWT", "kid": kid });
        let key = EncodingKey::from_secret(secret);
        sign(&key, algorithm, &header.to_string(), &self.claims().to_string())
    }

    fn algorithm_attacks(&self) -> Vec<(&'static str, String)> {
        let (rsa, claims) = (&self.rsa, self.claims().to_string());
        let good = rsa.token(&self.claims());
        let (_, signature) = good.rsplit_once('.').unwrap();
        let none = |name: &str, signature: &str| {
            let header = json!({ "alg": name, "typ": "JWT", "kid": "rsa" }).to_string();
            format!("{}.{}.{signature}", encode(header), encode(&claims))
        };
        let jwk = rsa.jwk();
        let modulus = jwk["n"].as_str().unwrap();
        let with = |algorithm, key: &Signer, kid: &str| {
            let header = json!({ "alg": format!("{algorithm:?}"), "typ": "JWT", "kid": kid });
            sign(&key.key, algorithm, &header.to_string(), &claims)
        };
        let header_only = |header: Value| {
            let header = header.to_string();
            rsa.sign(&header, &claims)
        };
        vec![
            ("none", none("none", "")),
            ("None", none("None", "")),
            ("NONE", none("NONE", "")),
            ("nOnE", none("nOnE", "")),
            ("none with a signature", none("none", signature)),
            ("empty algorithm", none("", "")),
            ("no signature", none("RS256", "")),
            ("HMAC with the modulus", self.hmac(Algorithm::HS256, "rsa", modulus.as_bytes())),
            (
                "HMAC with the bytes of the modulus",
                self.hmac(Algorithm::HS256, "rsa", &URL_SAFE_NO_PAD.decode(modulus).unwrap()),
            ),
            (
                "HMAC with the key as JSON",
                self.hmac(Algorithm::HS256, "rsa", jwk.to_string().as_bytes()),
            ),
            ("HS384", self.hmac(Algorithm::HS384, "rsa", modulus.as_bytes())),
            ("HS512", self.hmac(Algorithm::HS512, "rsa", modulus.as_bytes())),
            ("HMAC with an empty secret", self.hmac(Algorithm::HS256, "rsa", b"")),
            (
                "HMAC with a secret of the key set",
                sign(
                    &self.shared,
                    Algorithm::HS256,
                    &json!({ "alg": "HS256", "kid": "secret" }).to_string(),
                    &claims,
                ),
            ),
            ("PS256 is not configured", with(Algorithm::PS256, rsa, "rsa")),
            ("RS384 is not configured", with(Algorithm::RS384, rsa, "rsa")),
            ("RS512 is not configured", with(Algorithm::RS512, rsa, "rsa")),
            ("ES384 is not configured", with(Algorithm::ES384, &self.p384, "p384")),
            ("EdDSA is not configured", with(Algorithm::EdDSA, &self.ed, "ed")),
            ("RS256 with an elliptic key", with(Algorithm::RS256, rsa, "ec")),
            ("ES256 with an RSA key", with(Algorithm::ES256, &self.ec, "rsa")),
            ("RS256 that was signed as RS512", {
                sign(&rsa.key, Algorithm::RS512, &rsa.header().to_string(), &claims)
            }),
            ("algorithm missing", header_only(json!({ "typ": "JWT", "kid": "rsa" }))),
            ("algorithm is null", header_only(json!({ "alg": null, "kid": "rsa" }))),
            ("algorithm is a number", header_only(json!({ "alg": 7, "kid": "rsa" }))),
            ("algorithm is a list", header_only(json!({ "alg": ["RS256"], "kid": "rsa" }))),
            ("algorithm in lower case", header_only(json!({ "alg": "rs256", "kid": "rsa" }))),
            ("algorithm with a space", header_only(json!({ "alg": "RS256 ", "kid": "rsa" }))),
        ]
    }

    fn signature_attacks(&self) -> Vec<(&'static str, String)> {
        let good = self.rsa.token(&self.claims());
        let (message, signature) = good.rsplit_once('.').unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let signed = |bytes: &[u8]| format!("{message}.{}", encode(bytes));
        let mut flipped = bytes.clone();
        flipped[0] ^= 1;
        let (header, _) = message.split_once('.').unwrap();
        let elliptic = self.ec.token(&self.claims());
        let (elliptic_message, elliptic_signature) = elliptic.rsplit_once('.').unwrap();
        let elliptic_bytes = URL_SAFE_NO_PAD.decode(elliptic_signature).unwrap();
        let elliptic = |bytes: &[u8]| format!("{elliptic_message}.{}", encode(bytes));
        let admin = changed(self.claims(), "sub", json!("admin")).to_string();
        let foreign = self.own.token(&self.claims());
        let (_, foreign) = foreign.rsplit_once('.').unwrap();
        vec![
            ("one bit changed", signed(&flipped)),
            ("cut short", signed(&bytes[..bytes.len() - 1])),
            ("one byte more", signed(&[&bytes[..], &[0]].concat())),
            ("all zero", signed(&vec![0; bytes.len()])),
            ("padded", format!("{good}==")),
            (
                "ordinary base64",
                format!(
                    "{message}.{}",
                    STANDARD.encode(&bytes).replace('=', "").replace(['-', '_'], "+") + "/"
                ),
            ),
            ("signature of another key", format!("{message}.{foreign}")),
            ("claims replaced", format!("{header}.{}.{signature}", encode(admin))),
            ("header replaced", {
                let header = json!({ "alg": "RS256", "kid": "rsa", "typ": "at+jwt" }).to_string();
                let (_, claims) = message.split_once('.').unwrap();
                format!("{}.{claims}.{signature}", encode(header))
            }),
            ("elliptic, all zero", elliptic(&[0; 64])),
            ("elliptic, empty", elliptic(&[])),
            ("elliptic, half", elliptic(&elliptic_bytes[..32])),
            ("elliptic, in DER", {
                let (r, s) = elliptic_bytes.split_at(32);
                let der = [&[0x30, 0x44, 2, 0x20][..], r, &[2, 0x20], s].concat();
                elliptic(&der)
            }),
            ("elliptic, zero and one", elliptic(&[vec![0; 32], vec![0; 31], vec![1]].concat())),
        ]
    }

    fn key_attacks(&self) -> Vec<(&'static str, String)> {
        let jwks = format!("{}/jwks", self.attacker.issuer());
        let without_kid = json!({ "alg": "RS256", "typ": "JWT" }).to_string();
        let own_jwk = self.own.jwk();
        vec![
            ("the attacker's key under a known id", self.own.token(&self.claims())),
            ("unknown key id", self.header("kid", json!("unknown"))),
            ("key id with a path", self.header("kid", json!("../../../../dev/null"))),
            ("key id with SQL", self.header("kid", json!("rsa' OR '1'='1"))),
            ("key id with a URL", self.header("kid", json!(jwks))),
            ("key id is a number", self.header("kid", json!(0))),
            ("key id is empty", self.header("kid", json!(""))),
            ("key id is too long", self.header("kid", json!("k".repeat(300)))),
            ("no key id, with two keys", self.rsa.sign(&without_kid, &self.claims().to_string())),
            (
                "no key id, the attacker's key",
                self.own.sign(&without_kid, &self.claims().to_string()),
            ),
            ("jku", self.smuggled("jku", json!(jwks))),
            ("jku with the issuer as user", {
                self.smuggled("jku", json!(jwks.replace("http://", "http://id.example.com@")))
            }),
            ("x5u", self.smuggled("x5u", json!(jwks))),
            ("jwk", self.smuggled("jwk", own_jwk.clone())),
            ("jwk without a key id", {
                let header = json!({ "alg": "RS256", "jwk": own_jwk }).to_string();
                self.own.sign(&header, &self.claims().to_string())
            }),
            ("x5c", self.smuggled("x5c", json!(["MIIB"]))),
            ("x5t", self.smuggled("x5t", json!("AAAA"))),
            ("a key for encryption", self.encryption.token(&self.claims())),
            ("the key of the other issuer", self.second_key.token(&self.claims())),
            ("the other issuer's name", self.rsa.token(&self.second.claims())),
        ]
    }

    fn header_attacks(&self) -> Vec<(&'static str, String)> {
        vec![
            ("critical extension", self.header("crit", json!(["exp"]))),
            ("empty crit", self.header("crit", json!([]))),
            ("unencoded payload", self.header("b64", json!(false))),
            ("compression", self.header("zip", json!("DEF"))),
            ("encryption", self.header("enc", json!("A128GCM"))),
            ("proof of possession as a token", self.header("typ", json!("dpop+jwt"))),
            ("logout token", self.header("typ", json!("logout+jwt"))),
            ("security event", self.header("typ", json!("application/secevent+jwt"))),
            ("type is a number", self.header("typ", json!(1))),
        ]
    }

    fn claim_attacks(&self) -> Vec<(&'static str, String)> {
        let drop = |name: &str| self.rsa.token(&without(self.claims(), name));
        let text = self.claims().to_string();
        let raw = |old: &str, new: &str| {
            self.rsa.sign(&self.rsa.header().to_string(), &text.replace(old, new))
        };
        let exp = format!("\"exp\":{}", self.claims()["exp"]);
        vec![
            ("expired", self.claim("exp", json!(seconds(-1)))),
            ("expired long ago", self.claim("exp", json!(0))),
            ("no expiry", drop("exp")),
            ("expiry is null", self.claim("exp", Value::Null)),
            ("expiry is a text", self.claim("exp", json!(seconds(600).to_string()))),
            ("expiry is negative", self.claim("exp", json!(-1))),
            ("expiry is infinite", raw(&exp, "\"exp\":1e999")),
            ("not valid yet", self.claim("nbf", json!(seconds(300)))),
            ("nbf is a text", self.claim("nbf", json!("0"))),
            ("issued in the future", self.claim("iat", json!(seconds(300)))),
            ("another audience", self.claim("aud", json!("billing"))),
            ("no audience", drop("aud")),
            ("audience is null", self.claim("aud", Value::Null)),
            ("an empty list of audiences", self.claim("aud", json!([]))),
            ("other audiences", self.claim("aud", json!(["billing", "mail"]))),
            ("audience with a suffix", self.claim("aud", json!("herald.evil.example"))),
            ("audience in upper case", self.claim("aud", json!("HERALD"))),
            ("audience is an object", self.claim("aud", json!({ "herald": true }))),
            ("another issuer", self.claim("iss", json!("https://id.example.com"))),
            ("no issuer", drop("iss")),
            ("issuer with a slash", self.claim("iss", json!(self.provider.issuer() + "/"))),
            (
                "issuer with a suffix",
                self.claim("iss", json!(self.provider.issuer() + ".evil.example")),
            ),
            ("a list of issuers", self.claim("iss", json!([self.provider.issuer(), "x"]))),
            (
                "issuer in upper case",
                self.claim("iss", json!(self.provider.issuer().to_uppercase())),
            ),
            ("two issuers", raw("\"iss\":", "\"iss\":\"https://id.example.com\",\"iss\":")),
            ("two expiries", raw(&exp, &format!("\"exp\":{},{exp}", seconds(-9)))),
            ("no subject", drop("sub")),
            ("empty subject", self.claim("sub", json!(""))),
            ("subject is a number", self.claim("sub", json!(7))),
            ("subject with a line break", self.claim("sub", json!("alice\nadmin"))),
            ("subject is too long", self.claim("sub", json!("a".repeat(1000)))),
            ("no tenant", drop("tenant")),
            ("tenant is a list", self.claim("tenant", json!(["acme"]))),
            ("tenant is empty", self.claim("tenant", json!(""))),
        ]
    }

    fn form_attacks(&self) -> Vec<(&'static str, String)> {
        let good = self.rsa.token(&self.claims());
        let parts: Vec<_> = good.split('.').collect();
        let (header, claims, signature) = (parts[0], parts[1], parts[2]);
        let own = self.rsa.header().to_string();
        vec![
            ("two parts", format!("{header}.{claims}")),
            ("four parts", format!("{good}.{signature}")),
            ("five parts, as encrypted", format!("{header}.{claims}.{signature}.AA.AA")),
            ("empty parts", "..".to_owned()),
            ("no header", format!(".{claims}.{signature}")),
            ("no claims", format!("{header}..{signature}")),
            ("header is not JSON", self.rsa.sign("header", &self.claims().to_string())),
            ("header is a list", self.rsa.sign("[\"RS256\"]", &self.claims().to_string())),
            ("header with two algorithms", {
                let header = own.replace("\"alg\":", "\"alg\":\"none\",\"alg\":");
                self.rsa.sign(&header, &self.claims().to_string())
            }),
            ("claims are not JSON", self.rsa.sign(&own, "claims")),
            ("claims are a list", self.rsa.sign(&own, "[]")),
            ("something after the claims", self.rsa.sign(&own, &format!("{}x", self.claims()))),
            ("a token in a token", self.rsa.sign(&own, &format!("\"{good}\""))),
            ("a space inside", good.replacen('.', " .", 1)),
            ("a quoted token", format!("\"{good}\"")),
            ("two tokens", format!("{good},{good}")),
            ("too large", self.claim("more", json!("x".repeat(20_000)))),
        ]
    }
}

// proves: SEC-001, XC-004
#[tokio::test]
async fn more_than_sixty_forged_tokens_are_refused() {
    let forge = Forge::start().await;
    let hub = guarded(forge.issuers()).await;
    // Both accepted algorithms work, so that each attack fails by what it changes alone.
    for token in [&forge.rsa, &forge.ec].map(|signer| signer.token(&forge.claims())) {
        send(&hub, &token).await.result();
    }
    send(&hub, &forge.second_key.token(&forge.second.claims())).await.result();
    let downloads = forge.provider.requests("/jwks") + forge.second.requests("/jwks");
    let attacks = [
        forge.algorithm_attacks(),
        forge.signature_attacks(),
        forge.key_attacks(),
        forge.header_attacks(),
        forge.claim_attacks(),
        forge.form_attacks(),
    ]
    .concat();
    for (name, token) in &attacks {
        let answer = send(&hub, token).await;
        assert_eq!(answer.status(), 401, "{name}: {}", answer.text());
        assert_eq!(answer.error(), (-31011, "AUTHENTICATION_REQUIRED".into()), "{name}");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer realm=\"herald\""), "{name}: {challenge}");
        assert!(
            !answer.text().contains(
                token.rsplit('.').next().filter(|part| part.len() > 9).unwrap_or("\u{0}")
            )
        );
    }
    // Without a valid signature the answer does not depend on the rest of the token.
    let unsigned = [
        forge.algorithm_attacks(),
        forge.signature_attacks(),
        forge.key_attacks(),
        [
            ("exp", json!(0)),
            ("aud", json!("billing")),
            ("sub", json!("")),
            ("nbf", json!(seconds(300))),
        ]
        .map(|(name, value)| (name, forge.own.token(&changed(forge.claims(), name, value))))
        .into(),
    ]
    .concat();
    let expected = send(&hub, &unsigned[0].1).await.text().to_owned();
    assert!(expected.contains("not a valid token of an accepted issuer"), "{expected}");
    for (name, token) in &unsigned {
        assert_eq!(send(&hub, token).await.text(), expected, "{name}");
    }
    let expired = send(&hub, &forge.claim("exp", json!(0))).await;
    assert!(expired.text().contains("it has expired"), "the holder may know: {}", expired.text());
    println!("{} forged tokens refused", attacks.len());
    assert!(attacks.len() >= 60);
    assert_eq!(forge.attacker.requests("/jwks"), 0, "a URL of a token was followed");
    let after = forge.provider.requests("/jwks") + forge.second.requests("/jwks");
    assert_eq!(after, downloads, "forged tokens caused downloads");
    // Nothing was created, and the good tokens still work.
    let listed =
        hub.call(with(&forge.rsa.token(&forge.claims()), Call::rpc("ListTasks", &json!({}))));
    assert_eq!(listed.await.result()["totalSize"], 3);
}

#[tokio::test]
async fn a_new_key_is_found_and_a_removed_one_ends_its_streams() {
    let (old, new) = (Signer::rsa("old"), Signer::ec("new"));
    let provider = Provider::start(&[&old]).await;
    let algorithms = vec!["RS256".to_owned(), "ES256".to_owned()];
    let hub = guarded(vec![JwtIssuer { algorithms, ..issuer(&provider) }]).await;
    let token = old.token(&provider.claims());
    let call = with(&token, Call::rpc("SendStreamingMessage", &message("wait")));
    let mut stream = hub.client().await.open(call).await;
    assert!(stream.next().await.is_some());
    provider.publish(vec![new.jwk()]);
    send(&hub, &new.token(&provider.claims())).await.result();
    while stream.next().await.is_some() {}
    assert_eq!(send(&hub, &token).await.status(), 401);
}

#[tokio::test]
async fn unknown_key_ids_cause_one_download_at_most() {
    let key = Signer::ec("known");
    let provider = Provider::start(&[&key]).await;
    let algorithms = vec!["ES256".to_owned()];
    let settings = JwtIssuer { algorithms, refetch: NEVER, ..issuer(&provider) };
    let hub = guarded(vec![settings]).await;
    send(&hub, &key.token(&provider.claims())).await.result();
    for number in 0..100 {
        let header = changed(key.header(), "kid", json!(format!("unknown-{number}")));
        let token = key.sign(&header.to_string(), &provider.claims().to_string());
        assert_eq!(send(&hub, &token).await.status(), 401);
    }
    assert_eq!(provider.requests("/jwks"), 1);
}

#[tokio::test]
async fn without_the_provider_known_keys_work_until_their_time_and_then_nothing_does() {
    let key = Signer::ec("key");
    let provider = Provider::start(&[&key]).await;
    let algorithms = vec!["ES256".to_owned()];
    let kept = JwtIssuer { algorithms: algorithms.clone(), ..issuer(&provider) };
    let short =
        JwtIssuer { algorithms, keep_keys: Duration::from_millis(300), ..issuer(&provider) };
    let (patient, strict) = (guarded(vec![kept]).await, guarded(vec![short]).await);
    let token =
        || key.token(&changed(provider.claims(), "jti", json!(uuid::Uuid::new_v4().to_string())));
    send(&patient, &token()).await.result();
    send(&strict, &token()).await.result();
    provider.set_down(true);
    let error = loop {
        send(&patient, &token()).await.result();
        let answer = send(&strict, &token()).await.json();
        if let Some(error) = answer.get("error") {
            break error.to_string();
        }
    };
    assert!(error.contains("UNAVAILABLE") && error.contains("identity provider"), "{error}");
    let get = || with(&token(), Call::get("/tasks/x").v1());
    let answer = strict.call(get()).await;
    assert_eq!(answer.status(), 503);
    assert!(answer.header("retry-after").is_some());
    provider.set_down(false);
    while send(&strict, &token()).await.json().get("result").is_none() {}
}

#[tokio::test]
async fn an_expired_token_ends_its_stream() {
    let key = Signer::ec("key");
    let provider = Provider::start(&[&key]).await;
    let settings = JwtIssuer { algorithms: vec!["ES256".to_owned()], ..issuer(&provider) };
    let hub = guarded(vec![settings]).await;
    let token = key.token(&changed(provider.claims(), "exp", json!(seconds(2))));
    let call = with(&token, Call::rpc("SendStreamingMessage", &message("wait")));
    let mut stream = hub.client().await.open(call).await;
    let feed = with(&token, Call::get("/events"));
    let mut feed = hub.client().await.open(feed).await;
    while stream.next().await.is_some() {}
    while feed.next().await.is_some() {}
    assert!(seconds(0) >= 2);
    let answer = send(&hub, &token).await;
    assert_eq!(answer.status(), 401);
    assert!(answer.text().contains("expired"), "{}", answer.text());
}

#[tokio::test]
async fn claims_decide_tenant_principal_and_scopes() {
    let key = Signer::ec("key");
    let provider = Provider::start(&[&key]).await;
    let tenant = JwtTenant::Claim("/org/id".into());
    let settings = JwtIssuer {
        algorithms: vec!["ES256".to_owned()],
        tenant,
        principal_claim: "client_id".into(),
        scopes: JwtScopes::Claim { name: "roles".into(), prefix: "herald:".into() },
        ..issuer(&provider)
    };
    let hub = guarded(vec![settings]).await;
    let token = |client: &str, org: &str, roles: Value| {
        let mut claims = without(without(provider.claims(), "sub"), "tenant");
        claims["org"] = json!({ "id": org });
        claims["client_id"] = json!(client);
        claims["roles"] = roles;
        key.token(&claims)
    };
    let alice = token("alice", "acme", json!(["herald:send", "herald:read", "other"]));
    let task = send(&hub, &alice).await.result()["task"]["id"].clone();
    let get = |token: &str| hub.call(with(token, Call::rpc("GetTask", &json!({ "id": task }))));
    assert_eq!(get(&alice).await.result()["id"], task);
    let foreign = token("alice", "other", json!(["herald:read"]));
    assert_eq!(get(&foreign).await.error().1, "TASK_NOT_FOUND");
    let bob = token("bob", "acme", json!(["herald:read"]));
    assert_eq!(get(&bob).await.error().1, "TASK_NOT_FOUND");
    for roles in [json!(["send", "admin"]), json!("herald:read"), json!(7), Value::Null] {
        let answer = send(&hub, &token("alice", "acme", roles)).await;
        assert_eq!((answer.status(), answer.error().1), (403, "AUTHORIZATION_FAILED".into()));
    }
}

// proves: XC-004, ERR-069
#[tokio::test]
async fn card_challenge_and_metadata_name_the_issuer() {
    let key = Signer::ec("key");
    let (found, listed) = (Provider::start(&[&key]).await, Provider::start(&[&key]).await);
    let jwks_url = Some(format!("{}/jwks", listed.issuer()));
    let issuers = vec![issuer(&found), JwtIssuer { jwks_url, ..issuer(&listed) }];
    let hub = guarded(issuers).await;
    let card = hub.call(Call::get("/.well-known/agent-card.json").v1()).await.json();
    let schemes = card["securitySchemes"].as_object().unwrap();
    assert_eq!(schemes.keys().collect::<Vec<_>>(), ["bearer", "openIdConnect"]);
    let url = &schemes["openIdConnect"]["openIdConnectSecurityScheme"]["openIdConnectUrl"];
    assert_eq!(*url, format!("{}/.well-known/openid-configuration", found.issuer()));
    assert_eq!(card["securityRequirements"].as_array().unwrap().len(), 2);
    for (path, agent) in [("/a2a/jsonrpc", ""), ("/agents/silent/a2a/jsonrpc", "/agents/silent")] {
        let answer = hub.call(Call::rpc("GetTask", &json!({ "id": "x" })).at(path)).await;
        let document = hub.url(&format!("{agent}/.well-known/oauth-protected-resource"));
        let expected = format!("Bearer realm=\"herald\", resource_metadata=\"{document}\"");
        assert_eq!(answer.header("www-authenticate"), Some(&*expected));
        for path in [
            format!("{agent}/.well-known/oauth-protected-resource"),
            format!("/.well-known/oauth-protected-resource{agent}"),
        ] {
            let metadata = hub.call(Call::get(path)).await.json();
            assert_eq!(metadata["resource"], hub.url(agent));
            let servers = json!([found.issuer(), listed.issuer()]);
            assert_eq!(metadata["authorization_servers"], servers);
            assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
        }
    }
    let open = Hub::start().await;
    let answer = open.call(Call::get("/.well-known/oauth-protected-resource")).await;
    assert_eq!(answer.status(), 404);
}

#[tokio::test]
async fn a_discovery_document_of_another_issuer_is_not_believed() {
    let key = Signer::ec("key");
    let provider = Provider::start(&[&key]).await;
    provider.claim_to_be("https://id.example.com");
    let settings = JwtIssuer { algorithms: vec!["ES256".to_owned()], ..issuer(&provider) };
    let hub = guarded(vec![settings]).await;
    let call = with(&key.token(&provider.claims()), Call::get("/tasks/x").v1());
    assert_eq!(hub.call(call).await.status(), 503);
    assert_eq!(provider.requests("/jwks"), 0);
}

#[tokio::test]
async fn mistakes_in_the_settings_of_an_issuer_are_named() {
    let tenant = || JwtTenant::Claim("tenant".into());
    let good = || JwtIssuer::new("https://127.0.0.1:1", "herald", tenant());
    for (key, settings) in [
        ("issuer", JwtIssuer { issuer: "http://id.example.com".into(), ..good() }),
        ("issuer", JwtIssuer { issuer: "id.example.com".into(), ..good() }),
        ("audience", JwtIssuer { audience: Vec::new(), ..good() }),
        ("audience", JwtIssuer { audience: vec![String::new()], ..good() }),
        ("jwks_url", JwtIssuer { jwks_url: Some("http://id.example.com/keys".into()), ..good() }),
        ("algorithms", JwtIssuer { algorithms: Vec::new(), ..good() }),
        ("algorithms", JwtIssuer { algorithms: vec!["HS256".into()], ..good() }),
        ("algorithms", JwtIssuer { algorithms: vec!["none".into()], ..good() }),
        ("clock_skew", JwtIssuer { clock_skew: Duration::from_secs(61), ..good() }),
        ("ca", JwtIssuer { roots: Some(b"nothing".to_vec()), ..good() }),
    ] {
        assert_eq!(Jwt::new(vec![settings]).unwrap_err().key, key);
    }
    assert_eq!(Jwt::new(vec![good(), good()]).unwrap_err().key, "issuer");
}
