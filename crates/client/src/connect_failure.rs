//! Causes of a failed connection, found by the types of the errors below it.

use std::{error::Error as StdError, io, iter};

use tokio_rustls::rustls;

/// Why there was no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// The host name could not be resolved.
    UnknownHost,
    /// No program listens on the port.
    Refused,
    /// The server's answer to the TLS handshake is not TLS, but plain HTTP for example.
    NotTls,
    /// The server's certificate is not trusted.
    Certificate,
    /// The TLS handshake failed in another way.
    Handshake,
}

impl ConnectFailure {
    /// The cause of an error of this library or of reqwest. It is `None` for other failures, such as an unreachable network.
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let connecting = chain(error).any(|error| {
            error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect)
        });
        if !connecting {
            return None;
        }
        chain(error).find_map(|error| match error.downcast_ref::<io::Error>() {
            Some(error) => Self::of_io(error),
            None => error.downcast_ref().map(Self::of_tls),
        })
    }

    fn of_io(error: &io::Error) -> Option<Self> {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            return Some(Self::Refused);
        }
        // The source of an I/O error is that of the error in it, which is therefore looked at here.
        if let Some(inner) = error.get_ref() {
            if let Some(inner) = inner.downcast_ref::<io::Error>() {
                return Self::of_io(inner);
            }
            if let Some(inner) = inner.downcast_ref() {
                return Some(Self::of_tls(inner));
            }
        }
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Some(Self::Handshake);
        }
        // Sockets fail with an error code of the system. The resolver has codes of its own, which the standard library
        // reports as an error without a code.
        let resolver = error.raw_os_error().is_none() && error.kind() != io::ErrorKind::TimedOut;
        resolver.then_some(Self::UnknownHost)
    }

    fn of_tls(error: &rustls::Error) -> Self {
        if matches!(error, rustls::Error::InvalidCertificate(_)) {
            Self::Certificate
        } else if *error == rustls::InvalidMessage::InvalidContentType.into() {
            Self::NotTls
        } else {
            Self::Handshake
        }
    }
}

/// An error and its sources, from the outside in.
fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_found_by_its_type() {
        let tls = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        for (error, cause) in [
            (io::Error::from(io::ErrorKind::ConnectionRefused), Some(ConnectFailure::Refused)),
            (tls(plain), Some(ConnectFailure::NotTls)),
            (io::Error::other(tls(untrusted)), Some(ConnectFailure::Certificate)),
            (tls(rustls::Error::NoApplicationProtocol), Some(ConnectFailure::Handshake)),
            (io::Error::from(io::ErrorKind::UnexpectedEof), Some(ConnectFailure::Handshake)),
            (io::Error::other("no such name"), Some(ConnectFailure::UnknownHost)),
            (io::Error::from_raw_os_error(113), None),
        ] {
            assert_eq!(ConnectFailure::of_io(&error), cause, "{error}");
        }
        assert_eq!(ConnectFailure::of(&io::Error::other("elsewhere")), None);
    }
}
