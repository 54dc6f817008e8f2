//! Test that the committed code is up to date.

#[test]
fn the_generated_code_is_that_of_the_protobuf_files() {
    for file in generate::generate().unwrap() {
        let committed = std::fs::read(&file.path).unwrap_or_default();
        let same = committed == file.content;
        assert!(same, "{} is stale: run `cargo xtask generate`", file.path.display());
    }
}
