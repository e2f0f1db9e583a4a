//! Tables of settings, and how their values are read.

use std::fmt::Display;
use std::str::FromStr;

use crate::{InvalidSetting, Origin, Setting, Values};

/// A table of settings, made by [`settings!`](crate::settings).
pub trait Table {
    /// Reads the settings from `environment`, which returns the value of an environment variable. Variables that are set replace
    /// the values in the table. Appends a row for each setting of the table to `rows`.
    ///
    /// # Errors
    /// The first setting whose value is impossible, regardless of who has set it. The settings before it were read, and the
    /// others were not.
    fn read(
        &mut self,
        environment: &dyn Fn(&str) -> Option<String>,
        rows: &mut Vec<Setting>,
    ) -> Result<(), InvalidSetting>;
}

/// What the macro [`settings!`](crate::settings) knows of a row.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub variable: &'static str,
    pub unit: &'static str,
    pub values: Values,
    pub help: &'static str,
}

impl Row {
    /// Reads the value of the row's field, and checks it.
    #[doc(hidden)]
    pub fn read<T: FromStr + Display + PartialEq>(
        self,
        field: &mut T,
        default: &T,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Setting, InvalidSetting> {
        let Self { name, variable, unit, values, help } = self;
        let possible = values.describe::<T>(unit);
        let invalid =
            |value: String, why, origin| InvalidSetting::new(variable, value, why, &*possible).with_origin(origin);
        let mut origin = if *field == *default { Origin::Default } else { Origin::Program };
        if let Some(text) = environment(variable) {
            origin = Origin::Environment;
            *field = values.parse(&text).map_err(|why| invalid(text, why, origin))?;
        }
        let value = field.to_string();
        values.check(&value).map_err(|why| invalid(value.clone(), why, origin))?;
        Ok(Setting { name, variable, value, default: default.to_string(), unit, possible, origin, help })
    }
}

/// The entries of a list that is separated by commas, without spaces around them and without empty ones.
///
/// ```
/// assert_eq!(towline_settings::entries(" a, b,,c "), ["a", "b", "c"]);
/// assert!(towline_settings::entries("").is_empty());
/// ```
pub fn entries(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(Into::into).collect()
}

/// Makes a table of settings: a struct with a field for each row.
///
/// `"prefix"` precedes the names of the rows in [`Setting::name`](crate::Setting::name). A row may have `in` and its possible
/// [`Values`](crate::Values) after the unit. Fields that are tables themselves may follow the rows. The [crate's page](crate) has
/// an example.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        pub struct $table:ident, $prefix:literal {
            $($name:ident, $variable:literal: $type:ty = $default:expr, $unit:literal $(in $values:expr)?, $help:literal;)*
        }
        $($(#[$nested_attribute:meta])* pub $nested:ident: $nested_type:ty;)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, PartialEq, Debug)]
        #[non_exhaustive]
        pub struct $table {
            $(
                #[doc = concat!(
                    $help, ". ", $crate::settings!(@unit $unit), "Default: `", stringify!($default), "`. Variable: `", $variable, "`."
                )]
                pub $name: $type,
            )*
            $($(#[$nested_attribute])* pub $nested: $nested_type,)*
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($name: $default.into(),)* $($nested: <$nested_type>::default(),)* }
            }
        }

        impl $crate::Table for $table {
            fn read(
                &mut self,
                environment: &dyn Fn(&str) -> Option<String>,
                rows: &mut Vec<$crate::Setting>,
            ) -> Result<(), $crate::InvalidSetting> {
                let defaults = Self::default();
                $(
                    let row = $crate::Row {
                        name: concat!($prefix, stringify!($name)),
                        variable: $variable,
                        unit: $unit,
                        values: $crate::settings!(@values $($values)?),
                        help: $help,
                    };
                    rows.push(row.read(&mut self.$name, &defaults.$name, environment)?);
                )*
                $($crate::Table::read(&mut self.$nested, environment, rows)?;)*
                Ok(())
            }
        }
    };
    (@unit "") => {
        ""
    };
    (@unit $unit:literal) => {
        concat!("Unit: ", $unit, ". ")
    };
    (@values) => {
        $crate::Values::Any
    };
    (@values $values:expr) => {
        $values
    };
}

#[cfg(test)]
mod tests {
    use crate::{Origin, Table, Values};

    crate::settings! {
        /// Settings of a part.
        pub struct Part, "part." {
            size_bytes, "PART_SIZE_BYTES": u32 = 9u32, "B" in Values::range(8, 64).or_zero(), "How long it is";
        }
    }

    crate::settings! {
        /// Settings of the whole.
        pub struct Whole, "" {
            name, "NAME": String = "", "", "What it is called";
            on, "ON": bool = true, "", "Whether it is on";
        }
        /// The part.
        pub part: Part;
    }

    #[test]
    fn tables_contain_tables_and_the_environment_has_the_last_word() {
        let mut whole = Whole { name: "program".into(), ..Whole::default() };
        let (mut rows, environment) =
            (Vec::new(), |name: &str| (name == "PART_SIZE_BYTES").then(|| " 11 ".to_string()));
        whole.read(&environment, &mut rows).unwrap();
        assert_eq!((whole.name.as_str(), whole.part.size_bytes), ("program", 11));
        let told: Vec<_> = rows.iter().map(|row| (row.name, row.value.as_str(), row.unit, row.origin)).collect();
        let expected = [
            ("name", "program", "", Origin::Program),
            ("on", "true", "", Origin::Default),
            ("part.size_bytes", "11", "B", Origin::Environment),
        ];
        assert_eq!(told, expected);
        let possible: Vec<_> = rows.iter().map(|row| row.possible.as_str()).collect();
        assert_eq!(possible, ["any text", "true or false", "0, or 8 to 64 B"]);
    }

    #[test]
    fn a_value_that_cannot_be_kept_is_reported_with_its_variable_reason_and_alternatives() {
        for (variable, expected) in [
            ("ON", "ON: `many` is neither `true` nor `false`; possible: true or false"),
            ("PART_SIZE_BYTES", "PART_SIZE_BYTES: `many` is not a whole number; possible: 0, or 8 to 64 B"),
        ] {
            let environment = |name: &str| (name == variable).then(|| "many".to_string());
            let why = Whole::default().read(&environment, &mut Vec::new()).unwrap_err().to_string();
            assert_eq!(why, expected);
        }
    }

    #[test]
    fn a_value_of_the_program_is_checked_too_unless_the_environment_replaces_it() {
        let mut whole = Whole { part: Part { size_bytes: 65 }, ..Whole::default() };
        let why = whole.clone().read(&|_| None, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(why, "PART_SIZE_BYTES: `65`, which the program has set, is above 64; possible: 0, or 8 to 64 B");
        let environment = |name: &str| (name == "PART_SIZE_BYTES").then(|| "64".to_string());
        whole.read(&environment, &mut Vec::new()).unwrap();
    }
}
