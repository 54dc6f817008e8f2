//! Connections over the network: pools by protocol, with TLS and without proxies.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, Version, header};
use http_body_util::BodyExt;
use reqwest::redirect::Policy;
use tower::util::BoxCloneSyncService;

use crate::{
    credential::Credential,
    error::{BoxError, Error},
    limits::Timeouts,
    tls::TlsSettings,
    transport::http::HttpService,
};

/// Service over the network. Requests with version HTTP/2 use only that, upgrades use HTTP/1.1, and for the
/// others the server chooses.
pub(crate) fn network(
    tls: &TlsSettings,
    credentials: &[Credential],
    timeouts: &Timeouts,
) -> Result<HttpService, Error> {
    let pools = Pools {
        tls: tls.clone(),
        credentials: credentials.to_vec(),
        connect: timeouts.connect,
        made: Default::default(),
    };
    // Errors in the settings are reported now, not with the first request.
    drop(pools.connections()?);
    let pools = Arc::new(pools);
    Ok(BoxCloneSyncService::new(tower::service_fn(move |request: http::Request<Bytes>| {
        let client = pools.of(&request);
        async move {
            let (client, request) = (client?, reqwest::Request::try_from(request)?);
            // The URL may contain an API key.
            let response = client.execute(request).await.map_err(reqwest::Error::without_url)?;
            let response = Response::<reqwest::Body>::from(response);
            let shielded = |body: reqwest::Body| {
                body.map_err(|fault| BoxError::from(fault.without_url())).boxed_unsync()
            };
            Ok::<_, BoxError>(response.map(shielded))
        }
    })))
}

/// Connection pools by protocol, each created by its first request: loading the system's roots takes longer
/// than a call to this machine, which needs none.
struct Pools {
    tls: TlsSettings,
    credentials: Vec<Credential>,
    connect: Duration,
    /// With and without TLS: for HTTP/2, for HTTP/1.1 and for both.
    made: [OnceLock<reqwest::Client>; 6],
}

impl Pools {
    /// Settings of all connections: TLS, no redirects, no proxies of the environment.
    fn connections(&self) -> Result<reqwest::ClientBuilder, Error> {
        let builder = reqwest::Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(self.connect)
            // Shorter than the idle timeout of most servers, so that no request meets a connection that is being
            // closed.
            .pool_idle_timeout(Duration::from_secs(20))
            .user_agent(concat!("herald-client/", env!("CARGO_PKG_VERSION")));
        self.tls.apply(builder, &self.credentials)
    }

    fn of(&self, request: &http::Request<Bytes>) -> Result<reqwest::Client, Error> {
        let plain = request.uri().scheme_str() == Some("http");
        let builder = || {
            let builder = self.connections()?;
            Ok::<_, Error>(if plain { builder.tls_certs_only([]) } else { builder })
        };
        let (kind, builder): (usize, &dyn Fn() -> Result<reqwest::ClientBuilder, Error>) =
            match request.version() {
                Version::HTTP_2 => (0, &|| Ok(builder()?.http2_prior_knowledge())),
                _ if request.headers().contains_key(header::UPGRADE) => {
                    (1, &|| Ok(builder()?.http1_only()))
                }
                _ => (2, &builder),
            };
        let made = &self.made[kind + if plain { 3 } else { 0 }];
        if let Some(client) = made.get() {
            return Ok(client.clone());
        }
        let client = builder()?.build();
        let client =
            client.map_err(|fault| Error::setup(format!("HTTP cannot be set up: {fault}")))?;
        Ok(made.get_or_init(|| client).clone())
    }
}
