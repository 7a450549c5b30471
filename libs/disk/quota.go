package disk

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/libs/unit"
)

// A project is a set of files that a file system counts together: what is made in a folder of a project belongs to it.
// ext4 and XFS have projects if they are mounted so (prjquota); see ioctl_fsx(2) and quotactl_fd(2).

// Commands and constants of the kernel's fs.h, quota.h and dqblk_xfs.h, which package unix does not have.
const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherits      = 0x200      // FS_XFLAG_PROJINHERIT
	getLimits     = 0x800007   // Q_GETQUOTA
	setLimits     = 0x800008   // Q_SETQUOTA
	askState      = 0x5805     // Q_XGETQSTAT
	ofProjects    = 2          // PRJQUOTA
	enforced      = 1 << 5     // FS_QUOTA_PDQ_ENFD
	spaceIsSet    = 1          // QIF_BLIMITS
)

// attributes is the kernel's struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

// limits is the kernel's struct if_dqblk. Space is in KiB.
type limits struct {
	hardSpace, softSpace, space, hardFiles, softFiles, files, spaceTime, fileTime uint64
	valid                                                                         uint32
	_                                                                             uint32
}

// state is the kernel's struct fs_quota_stat.
type state struct {
	version int8
	flags   uint16
	_       [76]byte
}

var errNoQuotas = errors.New("the file system counts no projects, or bounds none: mount it with prjquota (ext4: after tune2fs -O project,quota)")

// Quotas returns nil if the file system of a folder bounds what projects take.
func Quotas(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var s state
	if err := quotactl(f, askState, 0, unsafe.Pointer(&s)); err != nil {
		return fmt.Errorf("%s: %w (%w)", dir, errNoQuotas, err)
	}
	if s.flags&enforced == 0 {
		return fmt.Errorf("%s: %w", dir, errNoQuotas)
	}
	return nil
}

// Bound bounds the space of a folder with all that will be made in it. The folder is empty, and this process is root.
// Files of a user that may exceed quotas (CAP_SYS_RESOURCE) are counted only.
func Bound(dir string, most unit.Bytes) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	project, err := unused(f)
	if err != nil {
		return fmt.Errorf("bound %s: %w", dir, err)
	}
	l := limits{hardSpace: uint64(most / unit.KiB), valid: spaceIsSet}
	if err := quotactl(f, setLimits, project, unsafe.Pointer(&l)); err != nil {
		return fmt.Errorf("bound %s: %w (%w)", dir, errNoQuotas, err)
	}
	var a attributes
	if err := ioctl(f, getAttributes, &a); err != nil {
		return fmt.Errorf("read the project of %s: %w", dir, err)
	}
	a.project, a.flags = project, a.flags|inherits
	if err := ioctl(f, setAttributes, &a); err != nil {
		return fmt.Errorf("make a project of %s: %w", dir, err)
	}
	return nil
}

// unused returns the number of a project without files. Those that people choose are small.
func unused(f *os.File) (project uint32, err error) {
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return 0, err
	}
	const own = 1 << 31
	for project := own | uint32(at.Ino); ; project++ { // inodes of XFS may have more bits than a project
		var l limits
		err := quotactl(f, getLimits, project|own, unsafe.Pointer(&l))
		switch {
		case errors.Is(err, unix.ENOENT) || err == nil && l.files == 0:
			return project | own, nil
		case err != nil:
			return 0, fmt.Errorf("%w (%w)", errNoQuotas, err)
		}
	}
}

func quotactl(f *os.File, command, id uint32, to unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), uintptr(command<<8|ofProjects), uintptr(id), uintptr(to), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func ioctl(f *os.File, command uint, a *attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(command), uintptr(unsafe.Pointer(a))); errno != 0 {
		return errno
	}
	return nil
}
