//! Conversion: written traces read the same, and formats refuse records that they cannot represent.

use super::*;

/// Writes the records of `bytes` to a new file and reads it again.
fn convert_to(
    target: &str,
    format: Format,
    source: (&str, &[u8]),
    options: WriteOptions,
) -> Result<Vec<Record>, TraceError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(target);
    let mut reader = reader(source.0, source.1, OpenOptions::default()).unwrap();
    let written = TraceWriter::create(&path, format, options).and_then(|writer| convert(&mut reader, writer));
    if written.is_err() {
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "an unfinished file stays behind");
    }
    written?;
    open(&path, OpenOptions::default())?.collect()
}

#[test]
fn there_and_back() {
    let keep = WriteOptions::default();
    let drop = WriteOptions { drop: true, ..keep };
    let text = b"R 5 3\nW 8 1\nW 9 1\nR 5 1\n";
    let expected = [read(5), read(6), read(7), write(8), write(9), read(5)];
    for (target, format) in [
        ("x.bin", Format::KernelLab),
        ("x.bin.zst", Format::KernelLab),
        ("x.txt", Format::SharedText),
        ("x.txt.gz", Format::SharedText),
        ("x.log.xz", Format::FioIolog),
    ] {
        assert_eq!(convert_to(target, format, ("s.txt", text), keep).unwrap(), expected, "{target}");
    }
    assert_eq!(convert_to("x", Format::Plain, ("s.txt", text), drop).unwrap(), [5, 6, 7, 8, 9, 5].map(read));

    // Every kind of record of a kernel-lab trace.
    let (_, name, bytes, expected) = samples().swap_remove(0);
    assert_eq!(convert_to("x.bin", Format::KernelLab, (name, &bytes), keep).unwrap(), expected);
    // Loads through a mapping are no faults, and text keeps them apart.
    let text = b"R 5 1\nL 6 2\nF 8 1\nL 5 1\n";
    let expected = [read(5), mapped(6), mapped(7), fault(8), mapped(5)];
    assert_eq!(convert_to("x.txt", Format::SharedText, ("s.txt", text), keep).unwrap(), expected);
    let expected = [read(5), mapped(6), mapped(7), mapped(8), mapped(5)];
    assert_eq!(convert_to("x.bin", Format::KernelLab, ("s.txt", text), drop).unwrap(), expected);
    // Files and fsyncs; fio's file ids are those of first use.
    let (_, name, bytes, expected) = samples().swap_remove(1);
    assert_eq!(convert_to("x.txt.zst", Format::SharedText, (name, &bytes), keep).unwrap(), expected);
    let expected = [read(5), read(6), read(7), write(6), read(1 << 32), Record::Sync { file: 1 }];
    assert_eq!(convert_to("x.iolog", Format::FioIolog, (name, &bytes), drop).unwrap(), expected);
    assert_eq!(
        convert_to("x", Format::Plain, ("p", b"18446744073709551615\n0\n"), keep).unwrap(),
        [read(u64::MAX), read(0)]
    );
}

#[test]
fn inexpressible_records_are_refused() {
    let keep = WriteOptions::default();
    let refused = |format, text: &str, options| match convert_to(
        "x.bin",
        format,
        ("s.txt", text.as_bytes()),
        options,
    ) {
        Err(error @ TraceError::Unrepresentable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let message = refused(Format::KernelLab, "R 1 1\nF 2 1\n", keep);
    assert!(message.contains("record 2 ") && message.contains("brought in by a fault"), "{message}");
    let message = refused(Format::Plain, "R 1 1\nR 2 1\nW 3 1\n", keep);
    assert!(
        message.contains("record 3 ") && message.contains("written") && message.contains("--drop"),
        "{message}"
    );
    assert!(refused(Format::FioIolog, "F 1 1\n", keep).contains("mapped"));
    let lab = 7u32 | 1 << 29;
    let both = [lab.to_le_bytes(), 7u32.to_le_bytes()].concat();
    let drop = WriteOptions { drop: true, ..keep };
    let error = convert_to("x.txt", Format::SharedText, ("x.bin", &both), drop).unwrap_err();
    assert!(error.to_string().contains("record 1 ") && error.to_string().contains("--renumber"), "{error}");
    let both_again =
        convert_to("x.txt", Format::SharedText, ("x.bin", &both), WriteOptions { renumber: true, ..drop });
    assert_eq!(both_again.unwrap(), [read(0), read(1)]);
    assert!(refused(Format::KernelLab, "R 1 1\nS 0 0\n", keep).contains("fsync"));
    let message = refused(Format::KernelLab, "R 536870911 2\n", keep);
    assert!(message.contains("page 536870912") && message.contains("--renumber"), "{message}");
    let records = convert_to(
        "x.bin",
        Format::KernelLab,
        ("s.txt", b"R 536870912 1\nW 5 1\nS 0 0\nR 536870912 1\n"),
        WriteOptions { renumber: true, drop: true },
    );
    assert_eq!(records.unwrap(), [read(0), write(1), read(0)]);
    let error = convert_to("x", Format::Arc, ("s.txt", b"R 1 1\n"), keep).unwrap_err();
    assert!(error.to_string().contains("kernel-lab, shared-text, fio-iolog, plain"), "{error}");
}

#[test]
fn a_kernel_lab_trace_is_written_with_its_sidecar() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin.zst");
    let write = |text: &[u8]| {
        let mut reader = reader("s.txt", text, OpenOptions::default()).unwrap();
        let writer = TraceWriter::create(&path, Format::KernelLab, WriteOptions::default()).unwrap();
        convert(&mut reader, writer).unwrap();
    };
    write(b"W 6 1\nR 4 2\n");
    let found = sidecar(&path).unwrap().unwrap();
    assert_eq!(
        (found.name.as_deref(), found.records, found.pages, found.writes),
        (Some("x"), Some(3), Some(7), Some(1))
    );
    assert_eq!(found.warm, None);
    write(b"R 4 2\n");
    assert_eq!(sidecar(&path).unwrap().unwrap().records, Some(2));
    assert_eq!(open(&path, OpenOptions::default()).unwrap().count(), 2);
    // A file that is not a sidecar is left alone.
    let json = folder.path().join("x.json");
    std::fs::write(&json, "{\"mine\": true}").unwrap();
    write(b"R 4 3\n");
    assert_eq!(std::fs::read_to_string(&json).unwrap(), "{\"mine\": true}");
}

#[test]
fn the_sidecar_says_how_long_the_trace_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.bin");
    std::fs::write(&path, [1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    let json = |text: &str| std::fs::write(folder.path().join("x.json"), text).unwrap();
    let all = |lossy| {
        let options = OpenOptions { lossy, ..OpenOptions::default() };
        let mut reader = open(&path, options)?;
        let pages = reader.by_ref().collect::<Result<Vec<Record>, _>>()?;
        Ok::<_, TraceError>((pages.len(), reader.skipped()))
    };
    json("{\"n\": 2, \"warm\": 0.25}");
    assert_eq!(all(false).unwrap(), (2, 0));
    json("{\"n\": 3}");
    let error = all(false).unwrap_err();
    assert_eq!(error.offset(), Some(8));
    assert!(error.to_string().contains("ends after 2 records"), "{error}");
    assert_eq!(all(true).unwrap(), (2, 1));
    for bad in ["{", "{\"n\": \"two\"}", "{\"warm\": 25}"] {
        json(bad);
        assert!(matches!(all(false), Err(TraceError::Usage { .. })), "{bad}");
    }
}
