//! Binary that writes the generated files.

use std::fs;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    for file in generate::generate()? {
        let directory = file.path.parent().context("a file is in a directory")?;
        fs::create_dir_all(directory)?;
        fs::write(&file.path, file.content)
            .with_context(|| format!("cannot write {}", file.path.display()))?;
    }
    Ok(())
}
