//! Tests of TLS on the server's port.

use std::{fs, time::Duration};

use rcgen::generate_simple_self_signed;
use tokio::{process::Command, time::timeout};

use crate::support::{Ended, Herald, Options, SOON, ended};

/// curl's output with headers, if it trusts this certificate.
async fn curl(certificate: &str, url: &str) -> Ended {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "-D", "-", "--cacert", certificate, url]);
    ended(command).await
}

// proves: SEC-010
#[tokio::test]
async fn the_flags_enable_tls_and_off_loopback_hsts() {
    let home = tempfile::tempdir().unwrap();
    let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let flags = ["--tls-certificate", certificate, "--tls-key", key];
    for (host, pinned) in [("127.0.0.1", false), ("0.0.0.0", true)] {
        let options = Options::config("[auth]\nrequired = false\n");
        let herald = Herald::start(options.arguments(flags).arguments(["--host", host])).await;
        assert!(herald.greeting.contains("https://127.0.0.1:"), "{}", herald.greeting);
        let url =
            format!("https://localhost:{}/.well-known/agent-card.json", herald.address.port());
        let shown = curl(certificate, &url).await.stdout.to_lowercase();
        assert!(shown.contains("\"url\":\"https://localhost:"), "{shown}");
        assert_eq!(shown.contains("strict-transport-security: max-age="), pinned, "{shown}");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_loaded_and_a_broken_one_is_not() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let renew = |copy: &str| {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        fs::write(path("cert.pem"), made.cert.pem()).unwrap();
        fs::write(path(copy), made.cert.pem()).unwrap();
    };
    renew("first.pem");
    let flags = ["--tls-certificate", &path("cert.pem"), "--tls-key", &path("key.pem")];
    let herald = Herald::start(Options::agents().arguments(flags)).await;
    let url = format!("https://localhost:{}/.well-known/agent-card.json", herald.address.port());
    assert!(curl(&path("first.pem"), &url).await.status.success());
    let logged = async |said: &str| {
        let wait = async {
            while !herald.log().contains(said) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, wait).await.expect(said);
    };
    renew("second.pem");
    herald.signal("HUP").await;
    logged("loaded the renewed certificate").await;
    assert!(curl(&path("second.pem"), &url).await.status.success());
    assert!(!curl(&path("first.pem"), &url).await.status.success(), "it is no longer shown");
    fs::write(path("key.pem"), "broken").unwrap();
    herald.signal("HUP").await;
    logged("the old one stays in use").await;
    assert!(curl(&path("second.pem"), &url).await.status.success());
}

#[tokio::test]
async fn an_invalid_certificate_is_refused_with_its_file() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("none.pem");
    fs::write(&file, "none").unwrap();
    let file = file.to_str().unwrap();
    let options = Options::default();
    let refused = options.arguments(["--tls-certificate", file, "--tls-key", file]).refused().await;
    assert!(refused.stderr.contains(file), "{refused:?}");
    assert!(refused.stderr.contains("no certificate in PEM"), "{refused:?}");
    let config = |key: &str| {
        let tls = format!("certificate = \"{file}\", key = \"{key}\"");
        Options::config(format!("[server]\nport = 0\ntls = {{ {tls} }}\n"))
    };
    for (options, name) in [
        (
            Options::default().arguments(["--tls-certificate", "/none", "--tls-key", file]),
            "--tls-certificate",
        ),
        (
            Options::default().arguments(["--tls-certificate", file, "--tls-key", "/none"]),
            "--tls-key",
        ),
        (config("/none"), "key under [server.tls]"),
    ] {
        let refused = options.refused().await;
        assert!(refused.stderr.contains("/none"), "{refused:?}");
        assert!(refused.stderr.contains(name), "no {name} in {refused:?}");
    }
    // The line of the configuration, and the file at fault.
    let neither = format!("[server.tls]\ncertificate = \"{file}\"\nkey = \"{file}\"\n");
    let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let path = |name: &str, text: String| {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = path("cert.pem", made.cert.pem());
    let key = path("key.pem", made.signing_key.serialize_pem());
    let other = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = path("other.pem", other.signing_key.serialize_pem());
    let with = |certificate: &str, key: &str, more: &str| {
        Options::config(format!(
            "[server.tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{more}[auth.certificates]\n\
             tenant = \"t\"\n"
        ))
    };
    let clients = format!("client_ca = \"{file}\"\n");
    let revoked = format!("client_ca = \"{certificate}\"\nclient_crl = \"{file}\"\n");
    for (options, line, said) in [
        (Options::config(neither), "line 2", "no certificate in PEM"),
        (
            with(&certificate, file, &format!("client_ca = \"{certificate}\"\n")),
            "line 3",
            "no private key in PEM",
        ),
        (with(&certificate, &key, &clients), "line 4", "no certificate authority"),
        (with(&certificate, &key, &revoked), "line 5", "no list of revoked certificates"),
    ] {
        let refused = options.refused().await;
        for word in ["herald.toml", line, said, file] {
            assert!(refused.stderr.contains(word), "no {word} in {refused:?}");
        }
    }
    let mixed =
        with(&certificate, &other, &format!("client_ca = \"{certificate}\"\n")).refused().await;
    assert!(mixed.stderr.contains(&other) && mixed.stderr.contains("line 2"), "{mixed:?}");
    let half = Options::default().arguments(["--tls-certificate", file]).refused().await;
    assert!(half.stderr.contains("--tls-key"), "{half:?}");
}
