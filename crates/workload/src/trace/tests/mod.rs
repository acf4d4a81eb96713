//! Whole files through the reader and back: every format, every compression.

mod convert;
mod damage;
mod shared;

use super::*;
use std::io::{self, Write};

/// A sample of every format with its records. All are small enough to be cut at every byte.
pub(super) fn samples() -> Vec<(Format, &'static str, Vec<u8>, Vec<Record>)> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let oracle = |id: u64, next: i64| {
        [&7u32.to_le_bytes()[..], &id.to_le_bytes(), &512u32.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let vscsi1 = |command: u16, length: u32, block: u64| {
        let command = command.to_le_bytes();
        [&[0; 4], &length.to_le_bytes()[..], &[0; 4], &command, &[0, 1], &block.to_le_bytes(), &[9; 8]]
            .concat()
    };
    let vscsi2 = |command: u16, length: u32, block: u64| {
        let command = command.to_le_bytes();
        [&command, &[0, 2], &[0; 4][..], &length.to_le_bytes(), &[0; 4], &block.to_le_bytes(), &[9; 16]]
            .concat()
    };
    let key = plain::hash;
    let block_records = vec![inside(write(2)), write(3), read(1)];
    vec![
        (
            Format::KernelLab,
            "k.bin",
            words(&[5, 1 << 31 | 6, 1 << 30 | 7, 1 << 29 | 8, 5]),
            vec![read(5), write(6), mapped(7), anon(8), read(5)],
        ),
        (
            Format::SharedText,
            "s.txt",
            b"# a comment\nR 5 3\nW 6 1\n\nF 4294967296 1\nS 4294967296 0\nR 9 0\n".to_vec(),
            vec![read(5), read(6), read(7), write(6), fault(1 << 32), Record::Sync { file: 1 }],
        ),
        (
            Format::OracleGeneral,
            "o.bin",
            [oracle(u64::MAX, -1), oracle(4, 3), oracle(5, -1), oracle(4, -1)].concat(),
            vec![read(u64::MAX), read(4), read(5), read(4)],
        ),
        (
            Format::LibCacheSimCsv,
            "c.csv",
            b"version,time,op,size,lbn\n1,5,2a,4096,17\n1,6,28,512,8\n".to_vec(),
            block_records.clone(),
        ),
        (
            Format::LibCacheSimCsv,
            "c.txt",
            b"0,7,100000\n1,8,1\n1,7,1\n".to_vec(),
            vec![read(7), read(8), read(7)],
        ),
        (
            Format::Vscsi,
            "v.1",
            [vscsi1(0x2a, 4096, 17), vscsi1(0x28, 512, 8)].concat(),
            block_records.clone(),
        ),
        (
            Format::Vscsi,
            "v.2",
            [vscsi2(0x2a, 4096, 17), vscsi2(0x28, 512, 8)].concat(),
            block_records.clone(),
        ),
        (
            Format::Msr,
            "m.csv",
            b"1281663720030,usr,0,Write,8704,4096,3\r\n1281663720031,usr,1,Read,4096,4096,3\r\n".to_vec(),
            vec![inside(write(2)), write(3), read(1 << 32 | 1)],
        ),
        (
            Format::Arc,
            "P.lis",
            b"230027 8 0 0\n8 4 0 1\n".to_vec(),
            vec![inside(read(28753)), read(28754), read(1)],
        ),
        (
            Format::MqSim,
            "q.trace",
            b"938513000 4 17 8 0\n938828000 3 8 1 1\n".to_vec(),
            vec![inside(write(2)), write(3), read(1 << 32 | 1)],
        ),
        (Format::Lirs, "l.trace", b"3\n1\n3\n*\n".to_vec(), vec![read(3), read(1), read(3)]),
        (
            Format::FioIolog,
            "f.log",
            b"fio version 2 iolog\na add\nb add\nb open\nb read 4096 4096\na write 1 1\n\
              b sync 0 0\nb close\n"
                .to_vec(),
            vec![read(1 << 32 | 1), inside(write(0)), Record::Sync { file: 1 }],
        ),
        (
            Format::FioIolog,
            "f3.log",
            b"fio version 3 iolog\n0 a add\n1 a open\n2 a read 4096 4096\n3 a datasync 0 0\n\
              4 a close\n"
                .to_vec(),
            vec![read(1), Record::Sync { file: 0 }],
        ),
        (
            Format::Blkparse,
            "b.txt",
            b"  8,0 3 1 0.000000000 697 Q W 17 + 8 [k d]\n  8,0 3 2 0.1 697 G W 17 + 8 [k]\n\
              8,0 1 1 0.1 0 Q R 8 + 8 [x]\nCPU0 (8,0):\n Reads Queued: 1, 4KiB\n"
                .to_vec(),
            block_records,
        ),
        (
            Format::Address,
            "a.trace",
            b"s 0x1fffff50 1\nl 0x20000000 6\n".to_vec(),
            vec![inside(write(0x1ffff)), read(0x20000)],
        ),
        (
            Format::CacheLib,
            "kv.csv",
            b"op_time,key,key_size,op,op_count,size\n1,ab,9,GET,2,7\n2,c,9,SET,1,7\n".to_vec(),
            vec![read(key(b"ab")), read(key(b"ab")), write(key(b"c"))],
        ),
        (
            Format::CacheLib,
            "block.csv",
            b"block_id,io_size,io_offset,op_name\nb-1,8192,4096,putChunk\nb-1,1,0,getChunkData\n".to_vec(),
            [1, 2]
                .map(|page| write(key(b"b-1") & !0xffff | page))
                .into_iter()
                .chain([read(key(b"b-1") & !0xffff)])
                .collect(),
        ),
        (Format::Plain, "p", b"12\n0xff\n12".to_vec(), vec![read(12), read(255), read(12)]),
        (
            Format::Keys,
            "w",
            b"user:1\nuser:2\nuser:1\n".to_vec(),
            ["user:1", "user:2", "user:1"].map(|word| read(plain::hash(word.as_bytes()))).to_vec(),
        ),
    ]
}

pub(super) fn read(page: u64) -> Record {
    Record::Access(PageAccess::read(page))
}

fn write(page: u64) -> Record {
    Record::Access(PageAccess { write: true, ..PageAccess::read(page) })
}

/// The access begins inside of its page.
fn inside(record: Record) -> Record {
    match record {
        Record::Access(access) => Record::Access(PageAccess { inside: true, ..access }),
        sync => sync,
    }
}

/// A page fault.
fn fault(page: u64) -> Record {
    Record::Access(PageAccess { mapped: true, fault: true, ..PageAccess::read(page) })
}

fn mapped(page: u64) -> Record {
    Record::Access(PageAccess { mapped: true, ..PageAccess::read(page) })
}

fn anon(page: u64) -> Record {
    Record::Access(PageAccess { anon: true, ..PageAccess::read(page) })
}

pub(super) fn reader(name: &str, bytes: &[u8], options: OpenOptions) -> Result<TraceReader, TraceError> {
    from_reader(name, Box::new(io::Cursor::new(bytes.to_vec())), options)
}

/// All records, and the error that ended them.
pub(super) fn read_all(
    name: &str,
    bytes: &[u8],
    options: OpenOptions,
) -> (Vec<Record>, Option<TraceError>, u64) {
    let mut reader = match reader(name, bytes, options) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error), 0),
    };
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    loop {
        match reader.next_batch(&mut batch) {
            Ok(0) => return (records, None, reader.skipped()),
            Ok(_) => records.extend_from_slice(&batch),
            Err(error) => {
                assert!(matches!(reader.next_batch(&mut batch), Ok(0)), "over is over");
                return (records, Some(error), reader.skipped());
            }
        }
    }
}

pub(super) fn forced(format: Format) -> OpenOptions {
    OpenOptions { format: Some(format), ..OpenOptions::default() }
}

pub(super) fn lossy(format: Format) -> OpenOptions {
    OpenOptions { lossy: true, ..forced(format) }
}

pub(super) fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(bytes, 3).unwrap(),
    }
}

pub(super) const COMPRESSIONS: [Compression; 3] = [Compression::Gzip, Compression::Xz, Compression::Zstd];

#[test]
fn every_sample_is_recognised_and_read() {
    for (format, name, bytes, expected) in samples() {
        let opened = reader(name, &bytes, OpenOptions::default()).unwrap();
        assert_eq!(opened.format(), format, "{name}");
        let records: Vec<Record> = opened.map(Result::unwrap).collect();
        assert_eq!(records, expected, "{name}");
        let (records, error, skipped) = read_all(name, &bytes, forced(format));
        assert_eq!((records, skipped), (expected, 0), "{name}");
        assert!(error.is_none(), "{name}: {error:?}");
    }
}

#[test]
fn compression_is_transparent_and_nests() {
    for (format, name, bytes, expected) in samples() {
        for outer in COMPRESSIONS {
            let once = compress(outer, &bytes);
            let opened = reader(&format!("{name}.any"), &once, forced(format)).unwrap();
            assert_eq!(opened.compression(), [outer]);
            assert!(opened.map(Result::unwrap).eq(expected.iter().copied()), "{name} {outer}");
            for inner in COMPRESSIONS {
                let name = format!("{name}.gz.zst");
                let twice = compress(outer, &compress(inner, &bytes));
                let opened = reader(&name, &twice, OpenOptions::default()).unwrap();
                assert_eq!((opened.compression(), opened.format()), (&[outer, inner][..], format), "{name}");
                assert!(opened.map(Result::unwrap).eq(expected.iter().copied()), "{name} {outer} {inner}");
            }
        }
    }
}

#[test]
fn the_file_name_decides_between_ambiguous_formats() {
    let recognised =
        |name: &str, bytes: &[u8]| reader(name, bytes, OpenOptions::default()).map(|it| it.format());
    let word = 5u32.to_le_bytes();
    assert_eq!(recognised("x.bin", &word).unwrap(), Format::KernelLab);
    assert_eq!(recognised("x.bin.zst", &word).unwrap(), Format::KernelLab);
    let error = recognised("x", &word).unwrap_err();
    assert!(matches!(&error, TraceError::Ambiguous { candidates, .. } if candidates == &[Format::KernelLab]));
    assert!(error.to_string().contains("--format kernel-lab"), "{error}");

    // One oracleGeneral record is also six kernel-lab words.
    let (_, _, oracle, _) = samples().swap_remove(2);
    let error = recognised("x", &oracle[..24]).unwrap_err();
    assert!(error.to_string().ends_with("name one with --format: oracle-general, kernel-lab"), "{error}");
    assert_eq!(recognised("x.bin", &oracle[..24]).unwrap(), Format::KernelLab);
    assert_eq!(recognised("x.oracleGeneral.bin", &oracle[..24]).unwrap(), Format::OracleGeneral);

    assert_eq!(recognised("x.txt", b"1\n2\n").unwrap(), Format::Plain);
    assert_eq!(recognised("lirs_x.txt", b"1\n2\n").unwrap(), Format::Lirs);
    assert_eq!(recognised("x.txt", b"1\n*\n").unwrap(), Format::Lirs);
    assert!(matches!(recognised("x.txt", b"what is this?\n"), Err(TraceError::UnknownFormat { .. })));
    assert!(matches!(recognised("x.csv", b"op_time,key,key_size\n1,a,2\n"), Err(TraceError::Columns { .. })));
    assert!(matches!(recognised("x.csv", b"what is this?\n"), Err(TraceError::Columns { .. })));
}

/// A name says more than bytes that can be anything.
#[test]
fn a_name_of_a_binary_format_is_believed() {
    let (_, _, oracle, expected) = samples().swap_remove(2);
    // Alone, the records name accesses that are not there.
    let cut = &oracle[24..49];
    let (records, error, _) = read_all("x.oracleGeneral.bin.zst", cut, OpenOptions::default());
    let Some(TraceError::Truncated { format: Format::OracleGeneral, offset: 24, .. }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(records, expected[1..2]);
    let error =
        reader("x.vscsi", &oracle[24..72], OpenOptions::default()).map(|reader| reader.format()).unwrap_err();
    assert!(error.to_string().contains("neither version 1 nor version 2"), "{error}");
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    for (format, name, bytes, expected) in samples() {
        if format.is_binary() {
            continue;
        }
        let marked = [&[0xef, 0xbb, 0xbf][..], &bytes].concat();
        for options in [OpenOptions::default(), forced(format)] {
            let opened = reader(name, &marked, options).unwrap();
            assert_eq!(opened.format(), format, "{name}");
            assert!(opened.map(Result::unwrap).eq(expected.iter().copied()), "{name}");
        }
    }
    // In a binary trace these bytes are data.
    let (records, error, _) = read_all("x.bin", b"\xef\xbb\xbf\x01", OpenOptions::default());
    assert!(error.is_none() && records == [read(0x01bf_bbef)], "{records:?} {error:?}");
    let (_, error, _) = read_all("x.txt", b"\xef\xbb\xbfR 1 1\nR 2 1\nR x 1\n", OpenOptions::default());
    assert_eq!(error.and_then(|error| error.offset()), Some(15));
}

#[test]
fn format_names_parse() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
        assert!(!format.summary().is_empty());
        assert_eq!(format.encoder().is_some(), Format::WRITABLE.contains(&format));
    }
    assert_eq!("Kernel_Lab".parse(), Ok(Format::KernelLab));
    assert_eq!("oracleGeneral".parse(), Ok(Format::OracleGeneral));
    assert!("kernel".parse::<Format>().unwrap_err().contains("shared-text"));
}

#[test]
fn a_trace_without_accesses_is_empty() {
    let empty = |name: &str, bytes: &[u8]| match read_all(name, bytes, OpenOptions::default()) {
        (_, Some(error @ TraceError::Empty { .. }), _) => error.to_string(),
        other => panic!("{name}: {other:?}"),
    };
    empty("x.bin", b"");
    empty("x.txt.zst", &compress(Compression::Zstd, b""));
    empty("x.lirs", b"*\n");
    empty("x", b"*\n");
    empty("x.txt", b"\n\n \r\n");
    empty("x.txt", b"# a comment\n\n");
    empty("x.txt", b"\xef\xbb\xbf");
    empty("x.txt", b"S 0 0\nR 1 0\n");
    assert!(empty("x", b"8,0 3 2 0.1 697 G W 17 + 8 [k]\n").contains("only Q events"));
    let (_, error, _) = read_all("x", b"a\nb\n", lossy(Format::Plain));
    assert!(matches!(error, Some(TraceError::Empty { skipped: 2, .. })), "{error:?}");
}

#[test]
fn long_requests_are_expanded_as_they_are_read() {
    let text = format!("R 7 {}\nW 1 1\nR 18446744073709551615 1\n", 1u64 << 32);
    let mut reader = reader("x.txt", text.as_bytes(), OpenOptions::default()).unwrap();
    let mut batch = Vec::new();
    for start in (7..).step_by(4096).take(100) {
        assert_eq!(reader.next_batch(&mut batch).unwrap(), 4096);
        assert_eq!((batch[0], batch[4095]), (read(start), read(start + 4095)));
        assert!(batch.capacity() <= 8192);
    }
    let text = "R 18446744073709551614 2\nW 1 10000\nW 2 1\n";
    let (records, error, _) = read_all("x.txt", text.as_bytes(), OpenOptions::default());
    assert!(error.is_none());
    assert_eq!(records.len(), 10_003);
    assert_eq!(
        (records[1], records[2], records[10_001], records[10_002]),
        (read(u64::MAX), write(1), write(10_000), write(2))
    );
}

#[test]
fn the_same_page_again_and_again() {
    let text = "key,op,op_count\na,GET,10000\nb,SET,1\n";
    let (records, error, _) = read_all("x.csv", text.as_bytes(), OpenOptions::default());
    assert!(error.is_none());
    assert_eq!(records.len(), 10_001);
    assert!(records[..10_000].iter().all(|record| *record == read(plain::hash(b"a"))));
}

#[test]
fn batches_and_iteration_mix() {
    let text: String = (0..10_000).map(|page| format!("{page}\n")).collect();
    let mut reader = reader("x.txt", text.as_bytes(), OpenOptions::default()).unwrap();
    let mut pages: Vec<Record> = (0..10).map(|_| reader.next().unwrap().unwrap()).collect();
    let mut batch = vec![read(77)];
    assert_eq!(reader.next_batch(&mut batch).unwrap(), 4086);
    pages.append(&mut batch);
    assert_eq!(reader.next_batch(&mut batch).unwrap(), 4096);
    pages.append(&mut batch);
    pages.extend(reader.map(Result::unwrap));
    assert!(pages.iter().copied().eq((0..10_000).map(read)));
}

#[test]
fn unit_sizes_apply_where_units_are_counted() {
    let options = |format, unit_bytes| OpenOptions { unit_bytes: Some(unit_bytes), ..forced(format) };
    let (records, _, _) = read_all("x", b"10 2 0 0\n", options(Format::Arc, 4096));
    assert_eq!(records, [read(10), read(11)]);
    for bad in [options(Format::Plain, 4096), options(Format::Arc, 0), options(Format::Arc, 1 << 21)] {
        assert!(matches!(reader("x", b"10 2 0 0\n", bad), Err(TraceError::Usage { .. })));
    }
    // Of CSV, only `lbn` counts units.
    let csv = |text: &str| read_all("x.csv", text.as_bytes(), options(Format::LibCacheSimCsv, 4096));
    assert_eq!(csv("lbn,size\n3,4096\n").0, [read(3)]);
    for bytes in ["offset,size\n4096,1\n", "id,size\n4096,1\n"] {
        assert!(matches!(csv(bytes).1, Some(TraceError::Usage { .. })), "{bytes}");
    }
}

#[test]
fn info_counts() {
    let mut trace = reader(
        "x.txt.gz",
        &compress(Compression::Gzip, b"R 5 3\nW 5 1\nF 4 1\nS 0 0\n"),
        OpenOptions::default(),
    )
    .unwrap();
    let found = info(&mut trace).unwrap();
    let expected = TraceInfo {
        format: "shared-text".into(),
        compression: vec!["gzip".into()],
        requests: 3,
        records: 6,
        accesses: 5,
        distinct_pages: 4,
        is_estimate: false,
        writes: 1,
        mapped: 1,
        anon: 0,
        syncs: 1,
        lowest_page: 4,
        highest_page: 7,
        skipped: 0,
    };
    assert_eq!(found, expected);
}
