//! Addresses that must never be dialled, and spellings of them. The tests of the whole sender use them too.

/// IPv4 addresses that must never be dialled.
pub(crate) const REFUSED_IPV4: [[u8; 4]; 30] = [
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [10, 0, 0, 1],
    [10, 255, 255, 254],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [100, 127, 255, 254],
    [127, 0, 0, 1],
    [127, 1, 2, 3],
    [127, 255, 255, 254],
    [168, 63, 129, 16],
    [169, 254, 0, 1],
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [172, 16, 0, 1],
    [172, 31, 255, 254],
    [192, 0, 0, 1],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [192, 88, 99, 1],
    [192, 168, 0, 1],
    [192, 168, 255, 254],
    [198, 18, 0, 1],
    [198, 19, 255, 254],
    [198, 51, 100, 1],
    [203, 0, 113, 1],
    [224, 0, 0, 1],
    [239, 255, 255, 250],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
];

/// IPv6 addresses that must never be dialled.
pub(crate) const REFUSED_IPV6: [&str; 38] = [
    "::",
    "::1",
    "::2",
    "0:0:0:0:0:0:0:1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::a9fe:a9fe",
    "100::1",
    "100:0:0:1::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:1::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:30::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "3fff:fff::1",
    "4000::1",
    "5f00::1",
    "8000::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
];

/// Spellings of an IPv4 address that some program reads as that address.
pub(crate) fn spellings(octets: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = octets;
    let number = u32::from_be_bytes(octets);
    let (last_two, last_three) = (number & 0xffff, number & 0xff_ffff);
    let wide = |text: &str| -> String {
        let shift = |letter: char| match letter {
            '0'..='9' => char::from_u32('\u{ff10}' as u32 + (letter as u32 - '0' as u32)).unwrap(),
            '.' => '\u{3002}',
            other => other,
        };
        text.chars().map(shift).collect()
    };
    let encoded: String =
        format!("{a}.{b}.{c}.{d}").bytes().map(|byte| format!("%{byte:02x}")).collect();
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("{number}"),
        format!("{number}."),
        format!("{number:#x}"),
        format!("0X{number:X}"),
        format!("0{number:o}"),
        format!("{a}.{b}.{last_two}"),
        format!("{a}.{last_three}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a:#x}.{b}.0{c:o}.{d}"),
        format!("{a:03}.{b:03}.{c:03}.{d:03}"),
        wide(&format!("{a}.{b}.{c}.{d}")),
        encoded,
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b::{a}.{b}.{c}.{d}]"),
        format!("[2002:{:x}:{:x}::1]", number >> 16, last_two),
    ]
}
