//! MQSim's text (of the SSD simulator, after DiskSim's ASCII format): block requests to several
//! devices.
//!
//! ```text
//! 938513000 4 264719034 16 0    time in ns, device, first sector, sectors, 0 writes and 1 reads
//! ```
//!
//! *Offset:* 512-byte sectors from the beginning of a device. A device is a file; file ids count in
//! order of first use, so a trace of one device is one flat space. *Size:* sectors; every touched 4
//! KiB page counts, including partial ones. Times must be numbers but are not used.

use super::decode::{LineFormat, Names, Parsed, Request};
use super::text::{decimal, fields, number, quote, wrong};

const SECTOR_BYTES: u64 = 512;

#[derive(Default)]
pub(super) struct MqSim {
    devices: Names,
}

impl LineFormat for MqSim {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if line.starts_with(b"#") {
            return Ok(Parsed::Nothing);
        }
        let Some([time, device, start, sectors, kind]) = fields::<5>(line) else {
            return Err(format!(
                "{} does not have the five fields time device sector sectors type",
                quote(line)
            ));
        };
        number(time, "the time")?;
        number(device, "the device")?;
        let write = match kind {
            b"0" => true,
            b"1" => false,
            _ => return Err(wrong("the type", kind, "0 (write) or 1 (read)")),
        };
        let (start, sectors) = (number(start, "the sector")?, number(sectors, "the number of sectors")?);
        let length = sectors
            .checked_mul(SECTOR_BYTES)
            .ok_or_else(|| format!("a request of {sectors} sectors is too large"))?;
        let request = Request::units(start, SECTOR_BYTES, length)?.writing(write);
        Ok(Parsed::Request(request.in_file(self.devices.id(device)?)?))
    }
}

/// Whether a sampled line looks like a record of this format.
pub(super) fn is_record(line: &[u8]) -> bool {
    fields::<5>(line).is_some_and(|fields| {
        fields.iter().all(|field| decimal(field).is_some()) && matches!(fields[4], b"0" | b"1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_of_several_devices() {
        let mut mqsim = MqSim::default();
        let mut line = |text: &str| match mqsim.line(text.as_bytes()) {
            Ok(Parsed::Request(request)) => Ok((request.page, request.pages, request.write)),
            other => Err(other),
        };
        assert_eq!(line("938513000 4 264719034 16 0"), Ok((33_089_879, 3, true)));
        assert_eq!(line("938828000 3 16 8 1"), Ok((1 << 32 | 2, 1, false)));
        assert_eq!(line("938828000 4 7 2 1"), Ok((0, 2, false)));
        for bad in [
            "1 4 8 8",
            "1 4 8 8 0 0",
            "1 4 8 8 2",
            "1 sda 8 8 0",
            "1 4 -8 8 0",
            "1 4 8 18446744073709551615 0",
            "1 4 36028797018963968 8 0",
        ] {
            assert!(line(bad).is_err(), "{bad}");
        }
    }
}
