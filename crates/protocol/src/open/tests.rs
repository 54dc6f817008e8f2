use super::*;

fn tree(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn text(json: &str) -> String {
    Json::parse(json).unwrap().to_string()
}

#[test]
fn formatting_does_not_show_in_the_text() {
    let plain = r#"{"a":[1,2.5,-3,true,null,"é\n\""],"b":{"c":{}}}"#;
    for other in [
        plain,
        "{ \"b\" : {\"c\":{ }},\n\t\"a\":[1, 2.50,-3,true,null,\"\\u00e9\\n\\u0022\"] }",
        r#"{"a":7,"b":{"c":{}},"a":[1,2.5e0,-3,true,null,"\u00e9\u000a\""]}"#,
    ] {
        assert_eq!(text(other), plain);
        assert_eq!(Json::parse(other).unwrap(), Json::parse(plain).unwrap());
    }
    for value in ["null", "[]", "{}", "0", r#""""#, "[[],{}]", "18446744073709551615"] {
        assert_eq!(text(value), value);
    }
}

#[test]
fn a_tree_and_its_text_lead_to_the_same_value() {
    let tree = tree(r#"{"z":1,"a":[{"y":"\u0001","x":null},1.5],"":{"":[]}}"#);
    assert_eq!(Json::from(&tree), Json::parse(&tree.to_string()).unwrap());
    assert_eq!(Json::from(&tree).read::<Value>().unwrap(), tree);
    assert_eq!(Json::new(&tree).unwrap().read::<Value>().unwrap(), tree);
}

#[test]
fn broken_json_is_refused() {
    for broken in ["", "{", "[1,]", r#"{"a"}"#, r#""\ud800""#, "1e999", "nul", "[1] 2", "\u{feff}1"]
    {
        assert!(Json::parse(broken).is_err(), "{broken}");
    }
    for other in ["[]", "null", "1", r#""a""#] {
        assert!(serde_json::from_str::<Metadata>(other).is_err(), "{other}");
    }
}

#[test]
fn depth_counts_arrays_and_objects() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let (most, more) = (usize::from(MAX_DEPTH), usize::from(MAX_DEPTH) + 1);
    assert!(!Json::parse(&nested(most)).unwrap().is_too_deep());
    assert!(Json::parse(&nested(more)).unwrap().is_too_deep());
    let object = |levels| format!(r#"{{"a":{},"b":0}}"#, nested(levels));
    let metadata = |levels| serde_json::from_str::<Metadata>(&object(levels)).unwrap();
    assert!(!metadata(most).is_too_deep());
    let mut deep = metadata(more);
    assert!(deep.is_too_deep());
    deep.insert("c", "x");
    assert!(deep.is_too_deep());
    let mut flat = Metadata::new();
    flat.extend(&deep);
    assert!(flat.is_too_deep());
}

#[test]
fn members_are_read_set_and_taken_out_by_name() {
    let mut metadata: Metadata = serde_json::from_str(r#"{"b":{"x":1},"a\n":"y"}"#).unwrap();
    assert_eq!(metadata.get::<String>("a\n").as_deref(), Some("y"));
    assert_eq!(metadata.get::<u32>("a\n"), None);
    assert_eq!(metadata.get::<Json>("c"), None);
    metadata.insert("c", tree("[3]"));
    metadata.insert("b", tree("null"));
    assert_eq!(metadata.as_str(), r#"{"a\n":"y","b":null,"c":[3]}"#);
    let names: Vec<_> = metadata.members().map(|(name, _)| name).collect();
    assert_eq!(names, ["a\n", "b", "c"]);
    assert_eq!(metadata.remove("a\n"), Some(Json::from("y")));
    assert_eq!(metadata.remove("a\n"), None);
    metadata.retain(|name, value| name == "c" && value == "[3]");
    assert_eq!(metadata.as_str(), r#"{"c":[3]}"#);
    metadata.remove("c");
    assert!(metadata.is_empty());
    assert_eq!(metadata, Metadata::new());
}

#[test]
fn texts_are_edited_at_every_level() {
    let json = Json::from(tree(r#"{"key":["key",{"b":"a key","key":1}],"n":null}"#));
    let edited = json.edited(|text| text.replace("key", "***"));
    assert_eq!(edited.as_str(), r#"{"***":["***",{"***":1,"b":"a ***"}],"n":null}"#);
}

#[test]
fn the_members_of_another_object_win() {
    let mut first = Metadata::from_iter([("a".to_owned(), tree("1")), ("b".to_owned(), tree("2"))]);
    first.extend(&Metadata::from_iter([("b".to_owned(), tree("3")), ("0".to_owned(), tree("[]"))]));
    assert_eq!(first.as_str(), r#"{"0":[],"a":1,"b":3}"#);
    first.extend(&Metadata::new());
    assert_eq!(first.as_str(), r#"{"0":[],"a":1,"b":3}"#);
}
