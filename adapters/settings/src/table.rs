//! Tables of settings, and how their values are read.

use std::str::FromStr;

use crate::{InvalidSetting, Setting};

/// A table of settings, made by [`settings!`](crate::settings).
pub trait Table {
    /// Reads the settings from `environment`, which returns the value of an environment variable. Variables that are set replace
    /// the values in the table. Appends a row for each setting of the table to `rows`.
    ///
    /// # Errors
    /// The first variable whose value is invalid. The variables before it were read, and the others were not.
    fn read(
        &mut self,
        environment: &dyn Fn(&str) -> Option<String>,
        rows: &mut Vec<Setting>,
    ) -> Result<(), InvalidSetting>;
}

/// Reads the text of a setting; spaces around it do not count. `variable` names the setting in the error.
///
/// # Errors
/// A text that does not describe a `T`.
pub fn parse<T: FromStr>(variable: &'static str, text: &str) -> Result<T, InvalidSetting> {
    let expected = match std::any::type_name::<T>() {
        "bool" => "true or false",
        "u8" => "a number from 0 to 255",
        "u32" => "a number from 0 to 4294967295",
        _ => "one of the values that the documentation of the setting lists",
    };
    text.trim().parse().map_err(|_| InvalidSetting::new(variable, text, expected))
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
/// `"prefix"` precedes the names of the rows in [`Setting::name`](crate::Setting::name). Fields that are tables
/// themselves may follow the rows. The [crate's page](crate) has an example.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        pub struct $table:ident, $prefix:literal {
            $($name:ident, $variable:literal: $type:ty = $default:expr, $unit:literal, $help:literal;)*
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
                    let mut origin =
                        if self.$name == defaults.$name { $crate::Origin::Default } else { $crate::Origin::Program };
                    if let Some(text) = environment($variable) {
                        self.$name = $crate::parse($variable, &text)?;
                        origin = $crate::Origin::Environment;
                    }
                    rows.push($crate::Setting::new(
                        (concat!($prefix, stringify!($name)), $variable, $unit, $help),
                        origin,
                        self.$name.to_string(),
                        defaults.$name.to_string(),
                    ));
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
}

#[cfg(test)]
mod tests {
    use crate::{Origin, Table};

    crate::settings! {
        /// Settings of a part.
        pub struct Part, "part." {
            size_bytes, "PART_SIZE_BYTES": u32 = 9u32, "B", "How long it is";
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
    }

    #[test]
    fn a_value_that_cannot_be_understood_is_reported_with_its_variable() {
        for (variable, expected) in [("ON", "true or false"), ("PART_SIZE_BYTES", "a number from 0 to")] {
            let environment = |name: &str| (name == variable).then(|| "many".to_string());
            let why = Whole::default().read(&environment, &mut Vec::new()).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{variable}: `many` is not {expected}")), "{why}");
        }
    }
}
