//! How much memory this process may use: the machine's, or less where a container says so (cgroup v1 and v2).

use std::path::{Path, PathBuf};

/// What limits host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimit {
    /// Bytes.
    pub bytes: u64,
    /// Whether a container's limit is the lower one, not the machine's memory.
    pub container: bool,
}

/// The limit of this process; `None` where the system doesn't say.
pub fn host_limit() -> Option<HostLimit> {
    host_limit_under(Path::new("/"))
}

/// As [`host_limit`], for a system whose files are under `root`.
fn host_limit_under(root: &Path) -> Option<HostLimit> {
    let machine = machine_memory(root);
    match (machine, container_limit(root)) {
        (machine, Some(limit)) if machine.is_none_or(|machine| limit < machine) => {
            Some(HostLimit { bytes: limit, container: true })
        }
        (Some(bytes), _) => Some(HostLimit { bytes, container: false }),
        (None, _) => None,
    }
}

fn machine_memory(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest limit among this process's groups and those that hold them.
fn container_limit(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut lowest: Option<u64> = None;
    for line in groups.lines() {
        // hierarchy:controllers:path; version 2 has hierarchy 0 and no controllers.
        let mut parts = line.splitn(3, ':');
        let (Some(hierarchy), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (kind, file) = if hierarchy == "0" && controllers.is_empty() {
            ("cgroup2", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("cgroup", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let Some((mounted_root, mount_point)) = mount(&mounts, kind) else { continue };
        // What is mounted may begin below the hierarchy's top, as it does in a container.
        let below = path.strip_prefix(mounted_root.trim_end_matches('/')).unwrap_or("").trim_start_matches('/');
        let top = root.join(mount_point.trim_start_matches('/'));
        let mut group: PathBuf = top.join(below);
        loop {
            let limit = std::fs::read_to_string(group.join(file)).ok().and_then(|text| text.trim().parse::<u64>().ok());
            // "max" isn't a number; version 1 says "no limit" with one near 2^63.
            if let Some(limit) = limit.filter(|&limit| limit < 1 << 60) {
                lowest = Some(lowest.map_or(limit, |lowest| lowest.min(limit)));
            }
            if group == top || !group.pop() {
                break;
            }
        }
    }
    lowest
}

/// Root and place of the first mount of a kind; of version 1, the one of the memory controller.
fn mount<'a>(mounts: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        // id parent major:minor root mount-point options … - type source super-options
        let (place, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let memory = file_system.next() == Some(kind)
            && (kind == "cgroup2" || file_system.nth(1).is_some_and(|o| o.split(',').any(|o| o == "memory")));
        let mut place = place.split(' ').skip(3);
        memory.then(|| Some((place.next()?, place.next()?))).flatten()
    })
}

/// The resident memory of this process, in bytes; 0 where the system doesn't say.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()));
    // Pages of 4 KiB on every machine this runs on; where they are larger, rustix knows.
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:        1000 kB\nMemFree:  1 kB\n");
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

    fn limit(files: &[(&str, &str)]) -> Option<(u64, bool)> {
        host_limit_under(system(files).path()).map(|limit| (limit.bytes, limit.container))
    }

    #[test]
    fn without_a_container_the_machine_counts() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[MEMINFO]), Some((1_024_000, false)));
        let files = [MEMINFO, ("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", V2)];
        assert_eq!(limit(&files), Some((1_024_000, false)));
        let unlimited = [&files[..], &[("sys/fs/cgroup/memory.max", "max\n")]].concat();
        assert_eq!(limit(&unlimited), Some((1_024_000, false)));
        let higher = [&files[..], &[("sys/fs/cgroup/memory.max", "9999999\n")]].concat();
        assert_eq!(limit(&higher), Some((1_024_000, false)));
    }

    #[test]
    fn version_2_counts_with_every_group_above() {
        let files = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", V2),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "4096\n"),
        ];
        assert_eq!(limit(&files), Some((4096, true)));
        // In a container the mount begins at the container's own group.
        let inside = [
            MEMINFO,
            ("proc/self/cgroup", "0::/docker/x\n"),
            ("proc/self/mountinfo", "30 23 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/memory.max", "8192\n"),
        ];
        assert_eq!(limit(&inside), Some((8192, true)));
    }

    #[test]
    fn version_1_counts_by_its_memory_controller() {
        let mounts = "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let mut files = vec![
            MEMINFO,
            ("proc/self/cgroup", "5:memory:/job\n4:cpu:/other\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(limit(&files), Some((1_024_000, false)));
        files.push(("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "12288\n"));
        assert_eq!(limit(&files), Some((12288, true)));
        // The path of another controller names another group.
        files.push(("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "4096\n"));
        assert_eq!(limit(&files), Some((12288, true)));
        // "No limit" is none, also where the machine doesn't say what it has.
        assert_eq!(limit(&files[1..4]), None);
    }

    #[test]
    fn of_nested_groups_and_of_both_versions_the_lowest_counts() {
        // Version 1: an outer group is lower than the inner one.
        let mounts = "32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      33 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let mut files = vec![
            MEMINFO,
            ("proc/self/cgroup", "5:hugetlb,memory:/a/b/c\n0::/d\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/a/b/c/memory.limit_in_bytes", "20480\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "16384\n"),
        ];
        assert_eq!(limit(&files), Some((16384, true)));
        // Where both versions have a say.
        files.push(("sys/fs/cgroup/unified/d/memory.max", "max\n"));
        assert_eq!(limit(&files), Some((16384, true)));
        files.push(("sys/fs/cgroup/unified/memory.max", "8192\n"));
        assert_eq!(limit(&files), Some((8192, true)));
        // A name that merely begins like the mounted group's, and rubbish in place of a number.
        let beside = [
            MEMINFO,
            ("proc/self/cgroup", "0::/docker/xy\nnonsense\n1:cpu\n"),
            ("proc/self/mountinfo", "30 23 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\nshort - cgroup2\n"),
            ("sys/fs/cgroup/memory.max", "4096 bytes\n"),
        ];
        assert_eq!(limit(&beside), Some((1_024_000, false)));
    }

    #[test]
    fn this_process_has_memory() {
        assert!(host_limit().is_some_and(|limit| limit.bytes > 1 << 20));
        assert!(resident_bytes() > 1 << 20);
    }
}
