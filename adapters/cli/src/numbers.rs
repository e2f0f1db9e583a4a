//! Numbers on the command line.

use clap::builder::{StringValueParser, TypedValueParser};
use towline_settings::Values;

/// Reads a number from `least` to `most`. The error for another text says what is possible.
pub fn number(least: u32, most: u32) -> impl TypedValueParser<Value = u32> {
    let values = Values::range(least, most);
    StringValueParser::new().try_map(move |text| {
        let refused = |why| format!("it {why}; possible: {}", values.describe::<u32>(""));
        values.check(&text).map_err(refused)?;
        text.parse().map_err(|_| refused("is not a whole number".to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_answered_by_the_possible_ones() {
        let command = clap::Command::new("test").arg(clap::Arg::new("n").short('n').value_parser(number(1, 64)));
        let parse = |text| command.clone().try_get_matches_from(["test", "-n", text]);
        assert_eq!(parse("64").unwrap().get_one::<u32>("n"), Some(&64));
        for (text, why) in [("0", "it is below 1"), ("65", "it is above 64"), ("x", "it is not a whole number")] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("possible: 1 to 64"), "{said}");
        }
    }
}
