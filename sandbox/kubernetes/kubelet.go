//go:build !before1.33

package main

import (
	"context"

	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func newKubelet(ctx context.Context) *cobra.Command { return kubelet.NewKubeletCommand(ctx) }
