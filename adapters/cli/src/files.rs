//! Files that the user names: texts about those that cannot be used, and a check before a job starts.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use rustix::fs::{Access, access};
use towline_net::advice;

/// The text for a file that cannot be used: the option that names it, the action that failed, the reason, and what to do.
pub fn refused(option: &str, path: &Path, action: &str, why: &Error) -> String {
    let advice = match why.kind() {
        ErrorKind::NotFound => "; check the path, and make what is missing",
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "; a directory is needed there, and this is something else: name another path"
        }
        ErrorKind::IsADirectory => "; it is a directory: name a file",
        _ => match advice(why) {
            "" => "; name another path",
            advice => advice,
        },
    };
    format!("{option} {}: cannot {action}: {why}{advice}", path.display())
}

/// Checks whether a file can be written later, or made. It does not make the file, and does not open it, since the reader of a
/// pipe would notice.
///
/// # Errors
/// The reason why it cannot.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(file) if file.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(access(path, Access::WRITE_OK)?),
        Err(why) if why.kind() == ErrorKind::NotFound => {
            let folder = path.parent().ok_or(why)?;
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
        }
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let folder = std::env::temp_dir().join(format!("towline-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, new) = (folder.join("file"), folder.join("new"));
        fs::write(&file, "").unwrap();
        let kind = |path: &Path| check_writable(path).map_err(|why| why.kind());
        let wrong = [&folder, &folder.join("none/file"), &file.join("below")].map(|path| kind(path));
        let (right, made) = ([kind(&file), kind(&new), kind(Path::new("new"))], new.exists());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(right, [Ok(()); 3]);
        assert!(!made);
        assert_eq!(wrong, [ErrorKind::IsADirectory, ErrorKind::NotFound, ErrorKind::NotADirectory].map(Err));
    }
}
