package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// lose makes the kernel drop a part of the packets that arrive at a socket, before TCP has seen
// them: a filter of the socket's draws lots. What was lost is then for the sender's TCP to notice
// and to send again, as on a bad road. It needs no rights, and no network of one's own. 0 ends it.
func lose(socket syscall.Conn, part float64) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = filter(int(fd), part) }); err != nil {
		return err
	}
	return set
}

func filter(fd int, part float64) error {
	if part <= 0 {
		err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		if errors.Is(err, unix.ENOENT) {
			return nil // it had none
		}
		return err
	}
	const whole = 1<<32 - 1
	lots, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtRand},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: uint32(part * whole), SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: whole},
	})
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(lots))
	for i, l := range lots {
		program[i] = unix.SockFilter{Code: l.Op, Jt: l.Jt, Jf: l.Jf, K: l.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// listen is for plain TCP: the sockets of Multipath TCP, which Go listens for by itself, take no
// filters.
func listen(address string) (net.Listener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	return c.Listen(context.Background(), "tcp4", address)
}

// noLoss is why this kernel loses nothing on demand; nil: it does. Where it does not, a link makes
// up what loss looks like above TCP: in order, and late.
var noLoss = sync.OnceValue(func() error {
	listener, err := listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := lose(listener.(*net.TCPListener), 0.5); err != nil {
		return fmt.Errorf("no packets can be lost here (SO_ATTACH_FILTER): %w", err)
	}
	return nil
})
