// Package packets writes packets into a stream of bytes, each after four bytes with its length, and reads them from it.
package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MediaType is that of such a stream.
const MediaType = "application/vnd.switchyard.packets"

const lengthBytes = 4

// Write writes a packet at once.
func Write(w io.Writer, packet []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, lengthBytes+len(packet)), uint32(len(packet))), packet...))
	return err
}

// ErrTooLarge reports a packet that is longer than the reader allows.
var ErrTooLarge = errors.New("the packet is too large")

// Read reads a packet of at most that number of bytes. The error is io.EOF if the stream has ended before it.
func Read(r io.Reader, most int) ([]byte, error) {
	var head [lengthBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > uint32(most) {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are read", ErrTooLarge, length, most)
	}
	packet := make([]byte, length)
	if _, err := io.ReadFull(r, packet); err != nil {
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return packet, nil
}
