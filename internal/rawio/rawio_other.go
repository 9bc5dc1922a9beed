//go:build !linux

package rawio

import (
	"errors"
	"net"
	"syscall"
)

// Supported reports that a Sender can send.
const Supported = false

// NewConn returns c: of other kernels it is not known what an announcement costs.
func NewConn(c net.Conn) net.Conn { return c }

// Sender sends nothing here.
type Sender struct{}

// NewSender makes a Sender.
func NewSender() *Sender { return &Sender{} }

// Send returns errors.ErrUnsupported.
func (*Sender) Send(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }

// ErrWouldBlock says that nothing has come yet.
var ErrWouldBlock = errors.New("nothing has come yet")

// Receiver receives nothing here.
type Receiver struct{}

// NewReceiver makes a Receiver.
func NewReceiver() *Receiver { return &Receiver{} }

// Receive returns errors.ErrUnsupported.
func (*Receiver) Receive(syscall.RawConn, []byte) (int, error) { return 0, errors.ErrUnsupported }
