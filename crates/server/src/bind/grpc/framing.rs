//! Framing of gRPC messages: five bytes before each.

/// Bytes before each message: the compression flag and the length.
pub(super) const PREFIX: usize = 5;

/// Appends a message with its prefix. No message comes near the largest length of the prefix.
pub(super) fn frame(out: &mut Vec<u8>, message: &[u8]) {
    out.reserve(PREFIX + message.len());
    out.push(0);
    out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(message);
}

/// The body of a response with one message, in the message's own buffer.
pub(crate) fn framed(mut message: Vec<u8>) -> Vec<u8> {
    let length = message.len();
    message.reserve_exact(PREFIX);
    message.resize(length + PREFIX, 0);
    message.copy_within(..length, PREFIX);
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    message[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    message[0] = 0;
    message
}
