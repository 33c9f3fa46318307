//go:build before1.33

package main

import (
	"context"

	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func newKubelet(_ context.Context) *cobra.Command { return kubelet.NewKubeletCommand() }
