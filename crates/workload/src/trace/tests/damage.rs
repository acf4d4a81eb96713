//! Damaged traces: every error has its place, nothing panics, and lossy reading continues.

use super::*;
use std::io;

/// Reads a trace to its error; returns the number of records before it, and the error.
fn fails(name: &str, bytes: &[u8], format: Format) -> (usize, TraceError) {
    match read_all(name, bytes, forced(format)) {
        (records, Some(error), 0) => (records.len(), error),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_damaged_record_is_named_by_offset_and_line() {
    let text = b"R 1 1\nR 2 1\nR 3 x\nR 4 1\n";
    let (before, error) = fails("a/x.txt", text, Format::SharedText);
    assert_eq!((before, error.offset(), error.line()), (2, Some(12), Some(3)));
    let message = error.to_string();
    assert!(
        message.starts_with("a/x.txt: line 3, byte 12: damaged shared-text record: count is \"x\""),
        "{message}"
    );
    assert!(message.contains("--lossy"), "{message}");
    let (records, error, skipped) = read_all("x.txt", text, lossy(Format::SharedText));
    assert!(error.is_none());
    assert_eq!((records, skipped), (vec![read(1), read(2), read(4)], 1));

    for (format, text, offset) in [
        (Format::Address, "l 0x1000 1\nl 0x2000\nl 0x3000 1\n", 11),
        (Format::MqSim, "1 0 8 8 1\n2 0 8 8 7\n3 0 8 8 1\n", 10),
        (Format::CacheLib, "key,op\na,TOUCH\na,GET\nb,GET\n", 7),
    ] {
        let (_, error) = fails("x", text.as_bytes(), format);
        assert_eq!((error.offset(), error.line()), (Some(offset), Some(2)), "{error}");
        let (records, error, skipped) = read_all("x", text.as_bytes(), lossy(format));
        assert!(error.is_none());
        assert_eq!((records.len(), skipped), (2, 1), "{format}");
    }
}

#[test]
fn the_place_is_right_far_into_the_file() {
    // Longer than the buffer, so that it has moved several times.
    let lines = 200_000u64;
    let mut text: String = (0..lines).map(|page| format!("R {page} 1\n")).collect();
    let offset = text.len() as u64;
    text.push_str("R broken 1\nR 7 1\n");
    let (before, error) = fails("x.txt", text.as_bytes(), Format::SharedText);
    assert_eq!((before as u64, error.offset(), error.line()), (lines, Some(offset), Some(lines + 1)));

    let mut bytes: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    bytes.extend_from_slice(&[1, 2, 3]);
    let (before, error) = fails("x.bin", &bytes, Format::KernelLab);
    let TraceError::Truncated { offset: 800_000, have_bytes: 3, need_bytes: 4, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(before, 200_000);
    let (records, error, skipped) = read_all("x.bin", &bytes, lossy(Format::KernelLab));
    assert!(error.is_none());
    assert_eq!((records.len(), skipped), (200_000, 1));
}

#[test]
fn binary_records_are_skipped_one_by_one() {
    let (_, name, mut bytes, expected) = samples().into_iter().find(|sample| sample.1 == "v.1").unwrap();
    let good = bytes[..32].to_vec();
    bytes[12] = 0xff;
    bytes.extend_from_slice(&good);
    let (before, error) = fails(name, &bytes, Format::Vscsi);
    assert_eq!((before, error.offset(), error.line()), (0, Some(0), None));
    let (records, error, skipped) = read_all(name, &bytes, lossy(Format::Vscsi));
    assert!(error.is_none());
    assert_eq!((records, skipped), (vec![expected[2], expected[0], expected[1]], 1));
}

#[test]
fn a_broken_compressed_stream_is_an_error() {
    let text: String = (0..100_000u64).map(|page| format!("R {} 1\n", page * page)).collect();
    for compression in COMPRESSIONS {
        let whole = compress(compression, text.as_bytes());
        let name = "x.txt.zst";
        let cut = &whole[..whole.len() / 2];
        let (before, error) = fails(name, cut, Format::SharedText);
        let TraceError::Compressed { corrupt: None, offset, .. } = error else {
            panic!("{compression}: {error}")
        };
        assert!(before > 0 && offset > 0 && error.to_string().contains("truncated: the "), "{error}");
        let (records, error, skipped) = read_all(name, cut, lossy(Format::SharedText));
        assert!(error.is_none(), "{compression}: {error:?}");
        assert_eq!((records.len(), skipped), (before, 1), "{compression}");

        let mut flipped = whole.clone();
        for byte in &mut flipped[whole.len() / 2..whole.len() / 2 + 64] {
            *byte ^= 0x55;
        }
        let (_, error) = fails(name, &flipped, Format::SharedText);
        assert!(!matches!(error, TraceError::Io { .. } | TraceError::Empty { .. }), "{compression}: {error}");
    }
}

/// A stream of xz whose header asks for a dictionary of 4 GiB. Its contents are unchanged.
fn with_a_huge_dictionary(mut stream: Vec<u8>) -> Vec<u8> {
    // The block header follows the stream header of 12 bytes: its size, flags, and the filter LZMA2
    // (0x21) with one byte of properties, the size of the dictionary. A CRC32 is at its end.
    let bytes = (usize::from(stream[12]) + 1) * 4;
    let header = &mut stream[12..12 + bytes];
    assert_eq!(header[2..4], [0x21, 1]);
    header[4] = 40;
    let mut sum = flate2::Crc::new();
    sum.update(&header[..bytes - 4]);
    header[bytes - 4..].copy_from_slice(&sum.sum().to_le_bytes());
    stream
}

#[test]
fn a_stream_that_needs_too_much_memory_is_refused_even_when_lossy() {
    let bytes = with_a_huge_dictionary(compress(Compression::Xz, b"R 1 1\n"));
    let mut long = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    long.window_log(28).unwrap();
    long.include_contentsize(false).unwrap();
    io::Write::write_all(&mut long, b"R 1 1\n").unwrap();
    for bytes in [bytes, long.finish().unwrap()] {
        for options in [forced(Format::SharedText), lossy(Format::SharedText), OpenOptions::default()] {
            let (records, error, _) = read_all("x.txt", &bytes, options);
            let Some(error @ TraceError::TooMuchMemory { .. }) = error else {
                panic!("{records:?}, {error:?}")
            };
            assert!(error.to_string().contains("more than 128 MiB"), "{error}");
        }
    }
}

#[test]
fn a_compressed_stream_without_content_is_truncated_not_unknown() {
    for compression in COMPRESSIONS {
        let whole = compress(compression, b"R 1 1\n");
        for length in 10..whole.len() {
            let (records, error, _) = read_all("x.txt.gz", &whole[..length], OpenOptions::default());
            match error {
                Some(TraceError::Compressed { corrupt: None, .. }) => assert!(records.len() <= 1),
                other => panic!("{compression} {length}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_line_without_end_is_skipped_without_being_kept() {
    let text = [b"R 1 1\n", &b"R".repeat(3_000_000)[..], b"\nR 2 1\n", &b"x".repeat(70_000), b"\n"].concat();
    let (before, error) = fails("x.txt", &text, Format::SharedText);
    assert_eq!((before, error.offset(), error.line()), (1, Some(6), Some(2)));
    let (records, error, skipped) = read_all("x.txt", &text, lossy(Format::SharedText));
    assert!(error.is_none());
    assert_eq!((records, skipped), (vec![read(1), read(2)], 2));
}

#[test]
fn missing_columns_are_named_even_when_lossy() {
    for format in [Format::LibCacheSimCsv, Format::Msr, Format::CacheLib] {
        let (_, error, _) = read_all("x.csv", b"alpha,beta\n1,2\n", lossy(format));
        let Some(error @ TraceError::Columns { .. }) = error else { panic!("{format}: {error:?}") };
        assert!(error.to_string().contains("alpha,beta"), "{error}");
    }
}

/// A trace cut anywhere gives a prefix of its records and never panics. A binary one also reports
/// the cut.
#[test]
fn every_prefix_of_every_sample() {
    for (format, name, bytes, expected) in samples() {
        for length in 0..bytes.len() {
            let cut = &bytes[..length];
            let (records, error, skipped) = read_all(name, cut, lossy(format));
            assert!(skipped <= 1 || error.is_some(), "{name} {length}: {skipped}");
            assert!(records.len() <= expected.len(), "{name} {length}");
            let (strict, error, _) = read_all(name, cut, forced(format));
            assert!(strict.len() <= records.len(), "{name} {length}");
            // The last line may be cut inside a number.
            if matches!(cut, [] | [.., b'\n']) || cut.contains(&0) {
                assert_eq!(strict, expected[..strict.len()], "{name} {length}");
            }
            let size = match (format, name) {
                (Format::KernelLab, _) => 4,
                (Format::OracleGeneral, _) => 24,
                (Format::Vscsi, "v.1") => 32,
                (Format::Vscsi, _) => 40,
                _ => continue,
            };
            if length % size != 0 {
                let error = error.unwrap_or_else(|| panic!("{name} {length} is not noticed"));
                assert_eq!(error.offset(), Some((length / size * size) as u64), "{name} {length}");
            }
            let _ = read_all(name, cut, OpenOptions::default());
        }
    }
}

#[test]
fn every_prefix_of_every_compressed_sample() {
    for (format, name, bytes, _) in samples() {
        for compression in COMPRESSIONS {
            let whole = compress(compression, &bytes);
            for length in 0..whole.len() {
                let (_, error, _) = read_all(name, &whole[..length], OpenOptions::default());
                // A stub of a compressed file may pass for a kernel-lab trace, and for no other.
                assert!(error.is_some() || length < 10, "{name} {compression} {length}");
                let _ = read_all(name, &whole[..length], lossy(format));
            }
        }
    }
}

/// SplitMix64, so that a failure is reproducible.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Reads at most a few batches, because a damaged count may ask for billions of pages.
fn nibble(name: &str, bytes: &[u8], options: OpenOptions) {
    let Ok(mut reader) = reader(name, bytes, options) else { return };
    let mut batch = Vec::new();
    for _ in 0..20 {
        match reader.next_batch(&mut batch) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Seeded(1);
    let alphabet = b"0123456789 \n,*RWFSQ+.x-#";
    for _ in 0..300 {
        let length = random.below(400);
        let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let text: Vec<u8> = (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
        for bytes in [noise, text] {
            nibble("x", &bytes, OpenOptions::default());
            for format in Format::ALL {
                nibble("x.bin", &bytes, forced(format));
                nibble("x.bin", &bytes, lossy(format));
            }
        }
    }
}

#[test]
fn flipped_bytes_never_panic() {
    let mut random = Seeded(2);
    for (format, name, bytes, _) in samples() {
        for _ in 0..200 {
            let mut broken = match random.below(4) {
                0 => compress(Compression::Zstd, &bytes),
                1 => compress(Compression::Gzip, &bytes),
                _ => bytes.clone(),
            };
            for _ in 0..=random.below(4) {
                let at = random.below(broken.len());
                broken[at] = random.next() as u8;
            }
            nibble(name, &broken, forced(format));
            nibble(name, &broken, lossy(format));
            nibble(name, &broken, OpenOptions::default());
        }
    }
}

#[test]
fn the_disk_s_own_errors_stay_errors() {
    struct Bad(usize);
    impl io::Read for Bad {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::from_raw_os_error(5));
            }
            let bytes = self.0.min(buffer.len());
            buffer[..bytes].fill(b'\n');
            buffer[0] = b'7';
            self.0 -= bytes;
            Ok(bytes)
        }
    }
    for good_bytes in [0, 5, 100_000] {
        let result = from_reader("x", Box::new(Bad(good_bytes)), lossy(Format::Plain))
            .and_then(|reader| reader.collect::<Result<Vec<Record>, _>>());
        assert!(matches!(result, Err(TraceError::Io { .. })), "{good_bytes}: {result:?}");
    }
    assert!(matches!(open(Path::new("/"), OpenOptions::default()), Err(TraceError::Io { .. })));
    assert!(matches!(open(Path::new("/no/such/file"), OpenOptions::default()), Err(TraceError::Io { .. })));
}

/// A wrong byte in compressed text shows as a wrong number. The checksum at the end tells them
/// apart.
#[test]
fn a_flipped_byte_of_a_compressed_file_is_its_damage_not_a_bad_record() {
    let text: String = (0..100_000u64).map(|page| format!("R {} 1\n", page * page)).collect();
    // Stored, not compressed: the byte is in a record.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(text.as_bytes()).unwrap();
    let mut bytes = encoder.finish().unwrap();
    let at = bytes.windows(9).position(|part| part == b"R 10000 1").unwrap() + 2;
    bytes[at] = b'x';
    for options in [forced(Format::SharedText), OpenOptions::default()] {
        let (records, error, _) = read_all("x.txt.gz", &bytes, options);
        let Some(error @ TraceError::Compressed { corrupt: Some(_), .. }) = error else {
            panic!("{error:?}")
        };
        assert!(records.len() == 100 && error.to_string().contains("damaged gzip stream ("), "{error}");
        assert!(error.to_string().contains("copy the file again"), "{error}");
    }
    let (records, error, skipped) = read_all("x.txt.gz", &bytes, lossy(Format::SharedText));
    assert!(error.is_none() && records.len() == 99_999);
    assert_eq!(skipped, 2, "the record and the checksum");
    // The record itself is wrong, and the stream is not.
    let bytes = compress(Compression::Gzip, text.replace("R 10000 1", "R x 1").as_bytes());
    let (_, error) = fails("x.txt.gz", &bytes, Format::SharedText);
    assert!(matches!(error, TraceError::Damaged { line: Some(101), .. }), "{error}");
}

#[test]
fn bytes_behind_a_complete_stream_are_called_so() {
    for compression in [Compression::Gzip, Compression::Xz] {
        let whole = compress(compression, b"R 1 1\nR 2 1\n");
        let zeroes = [&whole[..], &[0; 512]].concat();
        let twice = [&whole[..], &[0; 8], &whole].concat();
        for (bytes, count) in [(zeroes, 2), (twice.clone(), 4)] {
            let (records, error, _) = read_all("x.txt", &bytes, OpenOptions::default());
            assert!(error.is_none() && records.len() == count, "{compression}: {records:?} {error:?}");
        }
        for trailing in [&b"x"[..], b"trailing text\n", b"\0\0signature of it", &[0x1f, 0x8c, 8, 0, 0]] {
            let bytes = [&twice[..], trailing].concat();
            let (before, error) = fails("x.txt", &bytes, Format::SharedText);
            assert!(before == 4 && matches!(error, TraceError::Trailing { offset: 24, .. }), "{error}");
            let expected = format!("other bytes follow the complete {compression} stream of 24 decompressed");
            assert!(error.to_string().contains(&expected), "{error}");
            let (records, error, skipped) = read_all("x.txt", &bytes, lossy(Format::SharedText));
            assert!(error.is_none() && (records.len(), skipped) == (4, 1));
        }
        // A member that begins is truncated.
        let cut = [&whole[..], &whole[..whole.len() / 2]].concat();
        let (_, error) = fails("x.txt", &cut, Format::SharedText);
        assert!(matches!(error, TraceError::Compressed { corrupt: None, .. }), "{error}");
    }
}

#[test]
fn compressions_that_are_not_supported_are_named() {
    let files = [
        ("bzip2", &b"BZh91AY&SY\x12\x34\x56\x78"[..]),
        ("bzip2", b"BZh1\x17\x72\x45\x38\x50\x90\0\0\0\0"),
        ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7\x12\x34\x56\x78\x9a"),
    ];
    for (name, bytes) in files {
        for file in ["x.bin", "x.txt", "x.bin.bz2"] {
            let error = reader(file, bytes, OpenOptions::default()).unwrap_err();
            assert!(matches!(error, TraceError::Unsupported { .. }), "{error}");
            assert!(error.to_string().contains(&format!("compressed with {name}, which is not")), "{error}");
        }
        assert!(reader("x", bytes, forced(Format::KernelLab)).is_ok(), "any bytes can be kernel-lab");
    }
}

#[test]
fn files_that_hold_no_trace_as_they_are_say_what_they_are() {
    let tar = [&[b'a'; 257][..], b"ustar\0", &[0; 249]].concat();
    let utf16 = |units: fn(u16) -> [u8; 2]| "\u{feff}12\r\n13\r\n".encode_utf16().flat_map(units).collect();
    let files: [(&str, Vec<u8>); 7] = [
        ("a zip archive", b"PK\x03\x04\x14\0\0\0\x08\0".to_vec()),
        ("a 7-Zip archive", b"7z\xbc\xaf\x27\x1c\0\x04".to_vec()),
        ("a tar archive", tar),
        ("a Parquet file", b"PAR1\x15\x04\x15\0".to_vec()),
        ("libCacheSim's format lcs", 0x1234_5678_9abc_def0u64.to_le_bytes().to_vec()),
        ("text in UTF-16", utf16(u16::to_le_bytes)),
        ("text in UTF-16", utf16(u16::to_be_bytes)),
    ];
    for (name, bytes) in files {
        for stored in [bytes.clone(), compress(Compression::Zstd, &bytes)] {
            let error = reader("x.txt", &stored, OpenOptions::default()).unwrap_err();
            assert!(matches!(error, TraceError::Foreign { .. }), "{name}: {error}");
            let text = error.to_string();
            assert!(text.contains(name) && text.contains(" first"), "{text}");
        }
        assert!(reader("x.bin", &bytes, OpenOptions::default()).is_ok(), "any bytes can be kernel-lab");
    }
    // A page number that begins like a byte order mark.
    let error = reader("x", &[0xff, 0xfe, 0x41, 0, 1, 0, 0, 0], OpenOptions::default()).unwrap_err();
    assert!(matches!(error, TraceError::Ambiguous { .. }), "{error}");
}

/// Zeroes that a crash left in a text are damage at a line, and do not make it a binary file.
#[test]
fn zeroes_in_a_text_are_damage_at_their_line() {
    let text: String = (0..1000).map(|page| format!("{page}\n")).collect();
    let mut bytes = text.into_bytes();
    bytes[2000..2300].fill(0);
    let (records, error, _) = read_all("x.txt", &bytes, OpenOptions::default());
    let Some(error @ TraceError::Damaged { format: Format::Plain, .. }) = error else { panic!("{error:?}") };
    assert_eq!((records.len(), error.line()), (527, Some(528)), "{error}");
    let (records, error, skipped) =
        read_all("x.txt", &bytes, OpenOptions { lossy: true, ..OpenOptions::default() });
    assert!(error.is_none() && skipped == 1 && records.len() == 924, "{} {skipped}", records.len());
}

#[test]
fn advice_names_options_that_exist() {
    let cut = compress(Compression::Gzip, b"R 1 1\n")[..20].to_vec();
    let record = b"R 1 1\nR 2 1\nR x 1\n".to_vec();
    let cases: [(&str, &[u8], bool); 4] = [
        ("x.txt", &record, true),
        ("x.txt.gz", &cut, true),
        ("x", b"\x01\xfe\x02\x03", false),
        ("x.csv", b"a,b\n", false),
    ];
    for (name, bytes, is_damage) in cases {
        let message = |origin, lossy| {
            let options = OpenOptions { origin, lossy, ..OpenOptions::default() };
            read_all(name, bytes, options).1.map(|error| error.to_string())
        };
        for (origin, words) in [
            (OptionOrigin::CommandLine, ["--lossy", "--format"]),
            (OptionOrigin::Keys, ["`lossy`", "`format`"]),
            (OptionOrigin::Nowhere, ["`mglru trace convert --lossy`", "`mglru trace convert --format`"]),
        ] {
            let text = message(origin, false).unwrap();
            assert!(text.contains(words[usize::from(!is_damage)]), "{text}");
            assert!(origin != OptionOrigin::Keys || !text.contains("--"), "{text}");
            let lossy = message(origin, true);
            assert!(lossy.is_none_or(|text| !text.contains("lossy")), "{name}");
        }
    }
}
