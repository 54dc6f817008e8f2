//! TLS on the server's port, for deployments without a proxy.

use std::{
    fmt, io,
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
        ServerConfig, crypto,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
    server::TlsStream,
};

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 0x16;

/// The response to plain HTTP on this port. A client without TLS could not read another one.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 38\r\nConnection: close\r\n\r\nThis port requires TLS; use https URLs";

/// A certificate and its key, which can be replaced while connections are open. Clones share both.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

/// Errors of certificates and keys.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of the certificate contains none.
    #[error("no certificate in PEM was found")]
    NoCertificate,
    /// The file of the key contains none.
    #[error("no private key in PEM was found")]
    NoKey,
    /// The certificate and the key do not match, or one of them is invalid.
    #[error("the certificate and the key cannot be used: {0}")]
    Unusable(#[from] tokio_rustls::rustls::Error),
}

impl Tls {
    /// Loads a chain of certificates, the server's own first, and its key, both in PEM.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(RwLock::new(config(certificates, key)?))))
    }

    /// Replaces the certificate and the key for new connections.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let config = config(certificates, key)?;
        *locks::write(&self.0) = config;
        Ok(())
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
        let config = Arc::clone(&locks::read(&self.0));
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((ServerStream::Tls(Box::new(stream)), http2))
    }
}

/// The end of the validity of a certificate in DER, if it can be read.
pub fn valid_until(certificate: &[u8]) -> Option<Timestamp> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    // All certificates but the oldest have a version number.
    if let (0xa0, _, after) = element(rest)? {
        rest = after;
    }
    // The serial number, the algorithm and the issuer.
    for _ in 0..3 {
        (_, _, rest) = element(rest)?;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, end) = element(validity)?;
    let (kind, text, _) = element(end)?;
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    // Two digits for a year are from 1950 to 2049 (RFC 5280).
    let text = match kind {
        0x17 if text < "50" => format!("20{text}"),
        0x17 => format!("19{text}"),
        0x18 => text.to_owned(),
        _ => return None,
    };
    let field = |from: usize, to: usize| text.get(from..to);
    let (date, time) = (field(0, 8)?, field(8, 14)?);
    let (year, month, day) = (&date[..4], &date[4..6], &date[6..]);
    let (hour, minute, second) = (&time[..2], &time[2..4], &time[4..]);
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z").parse().ok()
}

/// The first element of DER: its kind, its content, and the rest of the bytes.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        // The number of bytes of the length.
        long @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (inside, rest) = rest.split_at_checked(length)?;
    Some((*kind, inside, rest))
}

fn config(certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::NoCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::NoKey)?;
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
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
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for ServerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
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
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
