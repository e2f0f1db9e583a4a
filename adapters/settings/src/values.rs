//! The possible values of a setting.

use std::fmt::Display;
use std::str::FromStr;

use crate::nearest::nearest;

/// The possible values of a setting. The type of the setting restricts them further.
///
/// ```
/// use towline_settings::Values;
///
/// let ring = Values::power_of_two(512, 1 << 26).or_zero();
/// assert_eq!(ring.describe::<u32>("B"), "0, or a power of two from 512 to 67108864 B");
/// assert_eq!(ring.check("1000"), Err("is not a power of two".into()));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Values {
    /// All values of the type.
    Any,
    /// Numbers.
    Numbers {
        /// Whether 0 is possible too, with a meaning of its own.
        zero: bool,
        /// Whether only powers of two are possible.
        powers_of_two: bool,
        /// The least number.
        least: u32,
        /// The largest number.
        most: u32,
    },
    /// Some names.
    OneOf(&'static [&'static str]),
    /// Texts that a function accepts: their description, and the function, which returns the reason for a refusal. The reason
    /// follows the value in a sentence: `is not a port`.
    Checked(&'static str, fn(&str) -> Result<(), String>),
}

impl Values {
    /// The numbers from `least` to `most`.
    pub const fn range(least: u32, most: u32) -> Self {
        Self::Numbers { zero: false, powers_of_two: false, least, most }
    }

    /// The numbers from `least` on.
    pub const fn at_least(least: u32) -> Self {
        Self::range(least, u32::MAX)
    }

    /// The powers of two from `least` to `most`.
    pub const fn power_of_two(least: u32, most: u32) -> Self {
        Self::Numbers { zero: false, powers_of_two: true, least, most }
    }

    /// These numbers, and 0.
    #[must_use]
    pub const fn or_zero(self) -> Self {
        match self {
            Self::Numbers { powers_of_two, least, most, .. } => {
                Self::Numbers { zero: true, powers_of_two, least, most }
            }
            other => other,
        }
    }

    /// Whether the text of a value is possible.
    ///
    /// # Errors
    /// The reason why it is not, as the end of a sentence that begins with the value.
    pub fn check(&self, value: &str) -> Result<(), String> {
        match *self {
            Self::Any => Ok(()),
            Self::Numbers { zero, powers_of_two, least, most } => match value.parse::<u64>() {
                Err(_) => Err("is not a whole number".into()),
                Ok(0) if zero => Ok(()),
                Ok(number) if number < least.into() => Err(format!("is below {least}")),
                Ok(number) if number > most.into() => Err(format!("is above {most}")),
                Ok(number) if powers_of_two && !number.is_power_of_two() => Err("is not a power of two".into()),
                Ok(_) => Ok(()),
            },
            Self::OneOf(names) if names.contains(&value) => Ok(()),
            Self::OneOf(names) => Err(unknown("value", value, names)),
            Self::Checked(_, check) => check(value),
        }
    }

    /// A description of the possible values of a setting of type `T`, with its unit.
    pub fn describe<T>(&self, unit: &str) -> String {
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        match *self {
            Self::Any => match std::any::type_name::<T>() {
                "bool" => "true or false".into(),
                "u8" => format!("0 to {}{unit}", u8::MAX),
                "u32" => format!("0 to {}{unit}", u32::MAX),
                _ => "any text".into(),
            },
            Self::Numbers { zero, powers_of_two, least, most } => {
                let zero = if zero { "0, or " } else { "" };
                let power = if powers_of_two { "a power of two from " } else { "" };
                format!("{zero}{power}{least} to {most}{unit}")
            }
            Self::OneOf([names @ .., last]) if !names.is_empty() => format!("{} or {last}", names.join(", ")),
            Self::OneOf(names) => names.concat(),
            Self::Checked(description, _) => description.into(),
        }
    }

    /// Reads a value from a text; spaces around it do not count.
    ///
    /// # Errors
    /// The reason, as for [`check`](Self::check).
    pub(crate) fn parse<T: FromStr + Display>(&self, text: &str) -> Result<T, String> {
        let text = text.trim();
        let value: T = text.parse().map_err(|_| self.why_not::<T>(text))?;
        self.check(&value.to_string())?;
        Ok(value)
    }

    /// Why a text is not a value of type `T`.
    fn why_not<T>(&self, text: &str) -> String {
        let most = match (self, std::any::type_name::<T>()) {
            (Self::OneOf(names), _) => return unknown("value", text, names),
            (_, "bool") => return "is neither `true` nor `false`".into(),
            (Self::Numbers { most, .. }, _) => *most,
            (_, "u8") => u8::MAX.into(),
            (_, "u32") => u32::MAX,
            _ => return "cannot be understood".into(),
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.strip_prefix('-') {
            _ if is_number(text) => format!("is above {most}"),
            Some(digits) if is_number(digits) => "is below 0".into(),
            _ => "is not a whole number".into(),
        }
    }
}

/// The reason for the refusal of a name that is not among `names`: what it is not, and the name that is meant probably.
pub fn unknown(what: &str, name: &str, names: &[&str]) -> String {
    let meant = nearest(name, names.iter().copied());
    // In parentheses, since the sentence may go on after the question.
    let meant = meant.map_or_else(String::new, |meant| format!(" (did you mean `{meant}`?)"));
    format!("is not a known {what}{meant}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_are_refused_with_the_reason() {
        let why = |values: Values, text| values.parse::<u32>(text).unwrap_err();
        assert_eq!(why(Values::range(1, 64), "0"), "is below 1");
        assert_eq!(why(Values::range(1, 64), "65"), "is above 64");
        assert_eq!(why(Values::range(1, 64), "99999999999999999999999"), "is above 64");
        assert_eq!(why(Values::Any, "4294967296"), "is above 4294967295");
        assert_eq!(why(Values::Any, "-1"), "is below 0");
        for text in ["", "64K", "1.5", "many", "-", "0x10"] {
            assert_eq!(why(Values::Any, text), "is not a whole number", "{text}");
        }
        assert_eq!(why(Values::power_of_two(4, 1024).or_zero(), "12"), "is not a power of two");
        assert_eq!(Values::power_of_two(4, 1024).or_zero().parse::<u32>(" 0 "), Ok(0));
        assert_eq!(Values::Any.parse::<u8>("256").unwrap_err(), "is above 255");
        assert_eq!(Values::Any.parse::<bool>("yes").unwrap_err(), "is neither `true` nor `false`");
    }

    #[test]
    fn a_wrong_name_is_refused_with_the_name_that_is_meant() {
        let names = Values::OneOf(&["network", "always", "never"]);
        assert_eq!(names.describe::<String>(""), "network, always or never");
        assert_eq!(names.check("always"), Ok(()));
        assert_eq!(names.check("allways").unwrap_err(), "is not a known value (did you mean `always`?)");
        assert_eq!(names.check("7").unwrap_err(), "is not a known value");
    }
}
