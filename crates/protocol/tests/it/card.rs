//! Cards, for readers of every generation.

use herald_protocol::{
    AgentCard, Dialect,
    card::{
        self, AgentCapabilities, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider,
        AgentSkill,
    },
    security::{
        ApiKeyScheme, AuthorizationCodeFlow, ClientCredentialsFlow, DeviceCodeFlow, HttpScheme,
        ImplicitFlow, MutualTlsScheme, OAuth2Scheme, OAuthFlow, OpenIdConnectScheme, PasswordFlow,
        ScopeList, SecurityRequirement, SecurityScheme,
    },
};

use crate::support::{golden, metadata, value};

fn interface(url: &str, binding: &str, version: &str) -> AgentInterface {
    AgentInterface {
        url: url.into(),
        protocol_binding: binding.into(),
        tenant: None,
        protocol_version: version.into(),
    }
}

fn needs(scheme: &str, scopes: &[&str]) -> SecurityRequirement {
    let list = scopes.iter().map(|&scope| scope.into()).collect();
    SecurityRequirement { schemes: [(scheme.into(), ScopeList { list })].into() }
}

fn oauth2(flow: OAuthFlow) -> SecurityScheme {
    SecurityScheme::OAuth2(OAuth2Scheme {
        description: None,
        flows: Some(flow),
        oauth2_metadata_url: Some("https://id.example.com/.well-known/oauth".into()),
    })
}

pub(crate) fn full() -> AgentCard {
    let scopes = || [("read".to_owned(), "to read".to_owned())].into();
    let token = || "https://id.example.com/token".to_owned();
    AgentCard {
        name: "Reviewer".into(),
        description: "Reviews code".into(),
        supported_interfaces: vec![
            interface("https://a.example.com/", "JSONRPC", "1.0"),
            interface("https://a.example.com/", "HTTP+JSON", "1.0"),
            interface("a.example.com:443", "GRPC", "1.0"),
            interface("a.example.com:443", "GRPC", "0.3"),
            interface("https://a.example.com/rest", "HTTP+JSON", "0.3"),
            interface("https://a.example.com/", "JSONRPC", "0.3"),
        ],
        provider: Some(AgentProvider {
            url: "https://example.com".into(),
            organization: "Example".into(),
        }),
        version: "1.2.3".into(),
        documentation_url: Some("https://example.com/docs".into()),
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(false),
            extensions: vec![AgentExtension {
                uri: "https://example.com/ext".into(),
                description: Some("adds things".into()),
                required: false,
                params: metadata(r#"{"depth":2}"#),
            }],
            extended_agent_card: Some(true),
            state_transition_history: None,
        },
        security_schemes: [
            (
                "key".to_owned(),
                SecurityScheme::ApiKey(ApiKeyScheme {
                    description: Some("a key".into()),
                    location: "header".into(),
                    name: "X-Key".into(),
                }),
            ),
            (
                "bearer".to_owned(),
                SecurityScheme::Http(HttpScheme {
                    description: None,
                    scheme: "Bearer".into(),
                    bearer_format: Some("JWT".into()),
                }),
            ),
            (
                "openid".to_owned(),
                SecurityScheme::OpenIdConnect(OpenIdConnectScheme {
                    description: None,
                    open_id_connect_url: "https://id.example.com".into(),
                }),
            ),
            ("tls".to_owned(), SecurityScheme::MutualTls(MutualTlsScheme::default())),
            (
                "code".to_owned(),
                oauth2(OAuthFlow::AuthorizationCode(AuthorizationCodeFlow {
                    authorization_url: "https://id.example.com/auth".into(),
                    token_url: token(),
                    refresh_url: None,
                    scopes: scopes(),
                    pkce_required: true,
                })),
            ),
            (
                "device".to_owned(),
                oauth2(OAuthFlow::DeviceCode(DeviceCodeFlow {
                    device_authorization_url: "https://id.example.com/device".into(),
                    token_url: token(),
                    refresh_url: None,
                    scopes: scopes(),
                })),
            ),
        ]
        .into(),
        security_requirements: vec![needs("bearer", &[]), needs("code", &["read"])],
        default_input_modes: vec!["text/plain".into()],
        default_output_modes: vec!["text/plain".into()],
        skills: vec![AgentSkill {
            id: "review".into(),
            name: "Review".into(),
            description: "Reads code".into(),
            tags: vec!["code".into()],
            examples: vec!["Review this".into()],
            input_modes: vec!["text/x-diff".into()],
            output_modes: vec![],
            security_requirements: vec![needs("code", &["read"])],
        }],
        signatures: vec![AgentCardSignature {
            protected: "eyJhbGciOiJFUzI1NiJ9".into(),
            signature: "c2ln".into(),
            header: None,
        }],
        icon_url: Some("https://example.com/icon.png".into()),
    }
}

// part of: CARD-005, CARD-015
// proves: CARD-004, CARD-023
#[test]
fn one_card_for_each_reader_and_one_for_all() {
    golden("card.v1.json", &Dialect::V1.encode_card(&full()));
    golden("card.v03.json", &Dialect::V03.encode_card(&full()));
    golden("card.hybrid.json", &card::hybrid(&full()));
    assert_eq!(Dialect::V03Rest.encode_card(&full()), Dialect::V03.encode_card(&full()));
}

// proves: CARD-004, FMT-011
#[test]
fn required_members_stay_and_unset_ones_go() {
    let card = AgentCard {
        name: "Example Agent".into(),
        capabilities: AgentCapabilities {
            streaming: Some(false),
            push_notifications: Some(false),
            ..AgentCapabilities::default()
        },
        ..AgentCard::default()
    };
    let expected = r#"{"name":"Example Agent","description":"","supportedInterfaces":[],
        "version":"","capabilities":{"streaming":false,"pushNotifications":false},
        "defaultInputModes":[],"defaultOutputModes":[],"skills":[]}"#;
    assert_eq!(value(Dialect::V1.encode_card(&card)), value(expected));
    let skill = AgentSkill::default();
    let card = AgentCard { skills: vec![skill], ..card };
    let shown = value(Dialect::V1.encode_card(&card));
    let expected = r#"{"id":"","name":"","description":"","tags":[]}"#;
    assert_eq!(shown["skills"][0], value(expected));
}

// part of: CARD-015
// proves: CARD-017
#[test]
fn the_0_3_card_names_its_main_address_and_repeats_it() {
    for bytes in [Dialect::V03.encode_card(&full()), card::hybrid(&full())] {
        let shown = value(bytes);
        assert_eq!(shown["protocolVersion"], "0.3.0");
        assert_eq!(shown["url"], "https://a.example.com/");
        assert_eq!(shown["preferredTransport"], "JSONRPC");
        let expected = r#"[{"url":"a.example.com:443","transport":"GRPC"},
            {"url":"https://a.example.com/rest","transport":"HTTP+JSON"},
            {"url":"https://a.example.com/","transport":"JSONRPC"}]"#;
        assert_eq!(shown["additionalInterfaces"], value(expected));
        assert_eq!(shown["supportsAuthenticatedExtendedCard"], true);
    }
    let rest_only = AgentCard {
        supported_interfaces: vec![interface("https://a/rest", "HTTP+JSON", "0.3")],
        ..full()
    };
    let shown = value(card::hybrid(&rest_only));
    assert_eq!(shown["url"], "https://a/rest");
    assert_eq!(shown["preferredTransport"], "HTTP+JSON");
}

// part of: EXT-008
// proves: CARD-023
#[test]
fn the_card_for_all_holds_the_1_0_card_whole() {
    let hybrid = value(card::hybrid(&full()));
    for (name, member) in value(Dialect::V1.encode_card(&full())).as_object().unwrap() {
        if name == "securitySchemes" || name == "skills" {
            continue;
        }
        assert_eq!(hybrid[name], *member, "{name}");
    }
    let scheme = &hybrid["securitySchemes"]["key"];
    assert_eq!((&scheme["type"], &scheme["in"]), (&value("\"apiKey\""), &value("\"header\"")));
    assert_eq!(scheme["apiKeySecurityScheme"]["location"], "header");
    assert_eq!(card::read(&card::hybrid(&full())).unwrap(), full());
}

#[test]
fn the_members_of_early_servers_are_added_and_push_is_spelled_once() {
    let mut full = full();
    full.capabilities.state_transition_history = Some(true);
    let (usual, more) = (value(card::hybrid(&full)), value(card::hybrid_with_snake_case(&full)));
    let (usual, more) = (usual.as_object().unwrap(), more.as_object().unwrap());
    for (name, member) in usual.iter().filter(|(name, _)| *name != "capabilities") {
        assert_eq!(more[name], *member, "{name}");
    }
    let mut capabilities = usual["capabilities"].clone();
    // The official Python client refuses a card with both spellings of this member.
    let push = capabilities.as_object_mut().unwrap().remove("pushNotifications").unwrap();
    capabilities["push_notifications"] = push;
    capabilities["state_transition_history"] = value("true");
    assert_eq!(more["capabilities"], capabilities);
    let schemes: Vec<_> =
        more["authentication"].as_array().unwrap().iter().map(|one| &one["scheme"]).collect();
    assert!(schemes.contains(&&value("\"bearer\"")), "{schemes:?}");
    assert!(!usual.contains_key("authentication"));
    full.capabilities.state_transition_history = None;
    assert_eq!(card::read(&card::hybrid_with_snake_case(&full)).unwrap(), full);
}

#[test]
fn without_a_0_3_address_the_card_for_all_is_the_1_0_card() {
    let mut card = full();
    card.supported_interfaces.retain(|interface| !interface.is_legacy());
    assert_eq!(card::hybrid(&card), Dialect::V1.encode_card(&card));
    // Asked for in 0.3 all the same, it offers the address there is.
    let shown = value(Dialect::V03.encode_card(&card));
    assert_eq!(shown["url"], "https://a.example.com/");
    assert_eq!(value(Dialect::V03.encode_card(&AgentCard::default()))["url"], "");
}

#[test]
fn cards_of_1_0_are_read_as_they_are_written() {
    assert_eq!(card::read(&Dialect::V1.encode_card(&full())).unwrap(), full());
    for flow in [
        OAuthFlow::ClientCredentials(ClientCredentialsFlow::default()),
        OAuthFlow::DeviceCode(DeviceCodeFlow::default()),
        OAuthFlow::Implicit(ImplicitFlow::default()),
        OAuthFlow::Password(PasswordFlow::default()),
    ] {
        let card = AgentCard {
            security_schemes: [("x".to_owned(), oauth2(flow))].into(),
            supported_interfaces: vec![interface("https://a/", "JSONRPC", "1.0")],
            ..AgentCard::default()
        };
        assert_eq!(card::read(&Dialect::V1.encode_card(&card)).unwrap(), card);
    }
}

// proves: CARD-019, CARD-024
#[test]
fn cards_of_0_3_are_read_with_every_address_paired() {
    let read = card::read(&Dialect::V03.encode_card(&full())).unwrap();
    let expected = [
        interface("https://a.example.com/", "JSONRPC", "0.3"),
        interface("a.example.com:443", "GRPC", "0.3"),
        interface("https://a.example.com/rest", "HTTP+JSON", "0.3"),
    ];
    assert_eq!(read.supported_interfaces, expected);
    assert_eq!(read.security_requirements, full().security_requirements);
    assert_eq!(read.skills, full().skills);
    assert_eq!(read.capabilities.extended_agent_card, Some(true));
    let key = &full().security_schemes["key"];
    assert_eq!(read.security_schemes["key"], *key);
    let SecurityScheme::OAuth2(device) = &read.security_schemes["device"] else { panic!() };
    assert_eq!(device.flows, None, "0.3 has no device flow");
}

// proves: CARD-024
#[test]
fn older_and_stranger_cards_are_read_too() {
    let v01 = r#"{"name":"old","url":"http://a/","version":"1","capabilities":{},"skills":[],
        "description":null,"authentication":{"schemes":["bearer"]}}"#;
    let read = card::read(v01.as_bytes()).unwrap();
    assert_eq!(read.supported_interfaces, [interface("http://a/", "JSONRPC", "0.1")]);
    assert_eq!(read.security_requirements, [needs("bearer", &[])]);
    let unsaid = r#"{"name":"old","url":"http://a/","version":"1","capabilities":{},"skills":[]}"#;
    let read = card::read(unsaid.as_bytes()).unwrap();
    assert_eq!(read.supported_interfaces, [interface("http://a/", "JSONRPC", "0.2")]);

    // A list of schemes or names in snake case: the types of an SDK of 0.3.
    for said in [
        r#""capabilities":{},"authentication":[{"scheme":"Bearer"},{"scheme":"magic"},{}]"#,
        r#""capabilities":{"push_notifications":false},"skills":[]"#,
    ] {
        let snake = format!(r#"{{"name":"old","url":"http://a/","version":"1",{said}}}"#);
        let read = card::read(snake.as_bytes()).unwrap();
        assert_eq!(read.supported_interfaces, [interface("http://a/", "JSONRPC", "0.3")]);
        let listed = said.contains("Bearer");
        let schemes: Vec<_> = read.security_schemes.keys().collect();
        assert_eq!(schemes, if listed { vec!["bearer"] } else { vec![] }, "{said}");
        let needed = if listed { vec![needs("bearer", &[])] } else { vec![] };
        assert_eq!(read.security_requirements, needed);
    }
    // Without a URL the binding and the version are kept: the agent is at the origin of its card.
    for said in
        [r#""url":"""#, r#""url":null"#, r#""protocolVersion":"0.2.6""#, r#""skills":[{"id":"a"}]"#]
    {
        let read = card::read(format!(r#"{{"name":"old",{said}}}"#).as_bytes()).unwrap();
        assert_eq!(read.supported_interfaces, [interface("", "JSONRPC", "0.2")], "{said}");
    }
    let other = card::read(br#"{"name":"package","version":"1.0.0"}"#).unwrap();
    assert!(other.supported_interfaces.is_empty());

    let v02 = r#"{"name":"old","url":"http://a/","protocolVersion":"0.2.9","version":"1",
        "capabilities":{"stateTransitionHistory":true,"push_notifications":true},"skills":[],
        "preferredTransport":"HTTP+JSON","additionalInterfaces":null,
        "securitySchemes":{"b":{"httpAuthSecurityScheme":{"scheme":"Bearer"}},
        "o":{"type":"oauth2","flows":{"password":{"tokenUrl":"t","scopes":{}},
        "clientCredentials":{"tokenUrl":"t","scopes":{}}}}},
        "security":[{"schemes":{"b":{"list":["x"]}}},{"o":["y"]}]}"#;
    let read = card::read(v02.as_bytes()).unwrap();
    assert_eq!(read.supported_interfaces, [interface("http://a/", "HTTP+JSON", "0.2")]);
    assert_eq!(read.capabilities.state_transition_history, Some(true));
    assert_eq!(read.capabilities.push_notifications, Some(true));
    assert_eq!(read.security_requirements, [needs("b", &["x"]), needs("o", &["y"])]);
    assert!(matches!(
        &read.security_schemes["o"],
        SecurityScheme::OAuth2(OAuth2Scheme { flows: Some(OAuthFlow::ClientCredentials(_)), .. })
    ));
    let wrong = r#"{"name":"x","securitySchemes":{"b":{"type":"magic"}}}"#;
    let error = Dialect::V1.decode_card(wrong.as_bytes()).unwrap_err();
    assert_eq!(error.kind.codes().json_rpc, -32006);
}
