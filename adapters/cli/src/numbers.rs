//! Numbers on the command line.

use clap::builder::{StringValueParser, TypedValueParser};

/// Reads a number from `least` to `most`. The error for another text says what is possible.
pub fn number(least: u32, most: u32) -> impl TypedValueParser<Value = u32> {
    StringValueParser::new().try_map(move |text| {
        let number = read(&text, least.into(), most.into())?;
        u32::try_from(number).map_err(|why| why.to_string())
    })
}

/// Reads a number as [`number`] does, with the limits of the larger type.
pub fn long_number(least: u64, most: u64) -> impl TypedValueParser<Value = u64> {
    StringValueParser::new().try_map(move |text| read(&text, least, most))
}

fn read(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = match text.parse() {
        _ if !is_whole => "is not a whole number".to_string(),
        Ok(number) if (least..=most).contains(&number) => return Ok(number),
        Ok(number) if number > most => format!("is above {most}"),
        Err(_) if digits == text => format!("is above {most}"),
        _ => format!("is below {least}"),
    };
    Err(format!("it {why}; possible: {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_answered_by_the_possible_ones() {
        let arg = |name: &'static str| clap::Arg::new(name).long(name).allow_negative_numbers(true);
        let command = clap::Command::new("test")
            .arg(arg("short").value_parser(number(1, 64)))
            .arg(arg("long").value_parser(long_number(1, 64)));
        let parse = |option: &str, text: &str| command.clone().try_get_matches_from(["test", option, text]);
        assert_eq!(parse("--short", "64").unwrap().get_one::<u32>("short"), Some(&64));
        assert_eq!(parse("--long", "64").unwrap().get_one::<u64>("long"), Some(&64));
        for (text, why) in [
            ("0", "it is below 1"),
            ("-1", "it is below 1"),
            ("65", "it is above 64"),
            ("99999999999999999999999", "it is above 64"),
            ("x", "it is not a whole number"),
            ("1T", "it is not a whole number"),
            ("", "it is not a whole number"),
        ] {
            for option in ["--short", "--long"] {
                let said = parse(option, text).unwrap_err().to_string();
                assert!(said.contains(why) && said.contains("possible: 1 to 64"), "{said}");
            }
        }
        assert_eq!(read("18446744073709551615", 0, u64::MAX), Ok(u64::MAX));
    }
}
