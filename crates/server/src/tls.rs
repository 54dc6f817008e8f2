//! TLS on the server's port, for deployments without a proxy.

use std::{
    fmt, io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, RwLock},
    task::{Context, Poll},
};

use herald_protocol::{Timestamp, locks};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::{self, CryptoProvider},
        pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject},
        server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
    },
    server::TlsStream,
};
use tokio_util::sync::CancellationToken;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

use crate::auth::PeerCertificate;

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 0x16;

/// The response to plain HTTP on this port. A client without TLS could not read another one.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 38\r\nConnection: close\r\n\r\nThis port requires TLS; use https URLs";

/// A certificate and its key, which can be replaced while connections are open. Clones share both.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<TlsState>>);

/// The settings of new connections.
struct TlsState {
    config: Arc<ServerConfig>,
    clients: Option<ClientCertificates>,
    /// Cancelled when other client certificates are trusted: those of open connections may not be.
    trust: CancellationToken,
}

/// Client certificates that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The certificates of the authorities that issue them, in PEM.
    pub authorities: Vec<u8>,
    /// Lists of revoked certificates, in PEM.
    pub revoked: Option<Vec<u8>>,
    /// True if a connection without a certificate is refused.
    pub required: bool,
}

/// Errors of certificates and keys.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of the certificate contains none.
    #[error("no certificate in PEM was found")]
    NoCertificate,
    /// The file of the key contains none.
    #[error("no private key in PEM was found")]
    NoKey,
    /// The file of the authorities of client certificates contains none, or one that cannot be used.
    #[error("no certificate authority for clients in PEM was found")]
    NoAuthority,
    /// The file of revoked certificates contains no list.
    #[error("no list of revoked certificates (X509 CRL) in PEM was found")]
    NoRevocationList,
    /// The authorities or the lists of revoked certificates cannot be used.
    #[error("client certificates cannot be verified: {0}")]
    Clients(#[from] VerifierBuilderError),
    /// The certificate and the key do not match, or one of them is invalid.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] tokio_rustls::rustls::Error),
}

impl Tls {
    /// Loads a chain of certificates, the server's own first, and its key, both in PEM.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Self::with_clients(certificates, key, None)
    }

    /// The same, with client certificates.
    pub fn with_clients(
        certificates: &[u8],
        key: &[u8],
        clients: Option<ClientCertificates>,
    ) -> Result<Self, TlsError> {
        let config = config(certificates, key, clients.as_ref())?;
        let state = TlsState { config, clients, trust: CancellationToken::new() };
        Ok(Self(Arc::new(RwLock::new(state))))
    }

    /// Replaces the certificate and the key for new connections.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let clients = locks::read(&self.0).clients.clone();
        self.replace_all(certificates, key, clients)
    }

    /// Replaces everything for new connections. If other client certificates are accepted now, those of
    /// open connections are no longer: their streams end, and their clients have to connect again.
    pub fn replace_all(
        &self,
        certificates: &[u8],
        key: &[u8],
        clients: Option<ClientCertificates>,
    ) -> Result<(), TlsError> {
        let config = config(certificates, key, clients.as_ref())?;
        let mut state = locks::write(&self.0);
        state.config = config;
        if state.clients != clients {
            state.clients = clients;
            std::mem::take(&mut state.trust).cancel();
        }
        Ok(())
    }

    /// True if a connection without a client certificate is refused.
    pub(crate) fn requires_certificates(&self) -> bool {
        locks::read(&self.0).clients.as_ref().is_some_and(|clients| clients.required)
    }

    /// The host names and addresses of the first of these certificates in PEM, as far as they can be read.
    pub fn hosts(certificates: &[u8]) -> Vec<String> {
        let first = CertificateDer::pem_slice_iter(certificates).next().and_then(Result::ok);
        let Some(first) = first else { return Vec::new() };
        let Ok((_, certificate)) = X509Certificate::from_der(&first) else { return Vec::new() };
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.into_iter().flat_map(|names| &names.value.general_names);
        let host = |name: &GeneralName<'_>| {
            if let GeneralName::DNSName(name) = name {
                return Some((*name).to_owned());
            }
            let GeneralName::IPAddress(bytes) = name else { return None };
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        };
        names.filter_map(host).collect()
    }

    /// The end of the validity of the first of these certificates in PEM, if it can be read.
    pub fn valid_until(certificates: &[u8]) -> Option<Timestamp> {
        valid_until(CertificateDer::pem_slice_iter(certificates).next()?.ok()?.as_ref())
    }

    /// Makes the TLS handshake. The flag is true for HTTP/2.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<(ServerStream, bool)> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            // Closing a socket with unread input resets the connection and discards the response.
            let _ = stream.read(&mut [0; 4 << 10]).await?;
            stream.write_all(PLAIN).await?;
            stream.shutdown().await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not TLS"));
        }
        let (config, trust) = {
            let state = locks::read(&self.0);
            (Arc::clone(&state.config), state.trust.clone())
        };
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let connection = stream.get_ref().1;
        let http2 = connection.alpn_protocol() == Some(b"h2");
        let peer = connection.peer_certificates().and_then(|chain| chain.first());
        let peer = peer.map(|peer| PeerCertificate::new(peer.to_vec(), trust));
        Ok((ServerStream::Tls(Box::new(stream), peer), http2))
    }
}

/// The end of the validity of a certificate in DER, if it can be read.
pub fn valid_until(certificate: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = certificate.validity().not_after.timestamp();
    Some(Timestamp::from_millis(seconds.checked_mul(1000)?))
}

fn config(
    certificates: &[u8],
    key: &[u8],
    clients: Option<&ClientCertificates>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::NoCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let verifier = clients.map(|clients| verifier(clients, &provider)).transpose()?;
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = match verifier {
        Some(verifier) => config.with_client_cert_verifier(verifier),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn verifier(
    clients: &ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&clients.authorities) {
        let authority = authority.map_err(|_| TlsError::NoAuthority)?;
        roots.add(authority).map_err(|_| TlsError::NoAuthority)?;
    }
    if roots.is_empty() {
        return Err(TlsError::NoAuthority);
    }
    let mut verifier =
        WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(provider));
    if let Some(revoked) = &clients.revoked {
        let lists: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(revoked).collect();
        let lists = lists.ok().filter(|lists| !lists.is_empty());
        // Lists of intermediate authorities are rarely at hand.
        verifier = verifier
            .with_crls(lists.ok_or(TlsError::NoRevocationList)?)
            .only_check_end_entity_revocation();
    }
    if !clients.required {
        verifier = verifier.allow_unauthenticated();
    }
    Ok(verifier.build()?)
}

/// Without the fields, because they contain a key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// A connection, with or without TLS.
#[derive(Debug)]
pub(crate) enum ServerStream {
    Plain(TcpStream),
    /// With the verified certificate of the client, if it has shown one.
    Tls(Box<TlsStream<TcpStream>>, Option<PeerCertificate>),
}

impl ServerStream {
    /// The verified certificate of the client.
    pub(crate) fn peer_certificate(&self) -> Option<&PeerCertificate> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(_, certificate) => certificate.as_ref(),
        }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream, _) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream, _) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream, _) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream, _) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
