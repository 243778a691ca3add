#pragma once

#include <cstddef>
#include <string_view>

// The allocation: what the scheduler decided for one pod, signed, and where it is found. Formats only; no code.
//
// Text (annotation `vgpu.io/allocation`), compact JSON, the exact bytes are signed:
//   {"v":1,"gen":7,"pod":"<pod uid>","node":"<node name>","containers":{"<container name>":{
//     "gpus":[{"uuid":"GPU-…","memory":3000,"cores":30}],"policy":"force|default|off","priority":1,
//     "onLimit":"error|kill","oversubscribe":false,"caps":"compute,utility"}}}
// `memory` is MiB and gross, `cores` per cent of one card (0 = unlimited), `gen` grows with each re-signing.
//
// Signature (annotation `vgpu.io/signature`): "<kid>.<base64>", where base64 (RFC 4648 §4, padded) is the Ed25519 signature
// (RFC 8032) of kSignatureDomain followed by the text, and kid = first 16 hex digits of SHA-256 over the 32-byte public key.
//
// Trusted public keys: /etc/vgpu/trust.d/<kid>.pub, one line, base64 of the 32 bytes, owned by root, not writable by others.
//
// Record of a pod: /run/vgpu/pods/<pod uid>, root-owned, written by rename:
//   {"v":1,"gen":7,"allocation":"<text>","signature":"<signature>"}      `gen` = highest generation verified so far
//
// Facts of the node: /run/vgpu/node, root-owned, written by rename:
//   {"v":1,"name":"<node name>","runtime":"<low-level runtime, absolute path>","toolkitMode":"legacy|cdi",
//    "gpus":[{"uuid":"GPU-…","minor":0,"contextBytes":335544320}]}
// `minor`: card n is the character device 195:n (/dev/nvidia<n>). `contextBytes`: memory of one empty context, measured.
namespace vgpu::api {

inline constexpr std::string_view kAllocationAnnotation = "vgpu.io/allocation";
inline constexpr std::string_view kSignatureAnnotation = "vgpu.io/signature";
inline constexpr std::string_view kSignatureDomain = "vgpu.io/allocation/v1\n";
inline constexpr std::string_view kRequestedVariable = "VGPU_REQUESTED";
inline constexpr std::size_t kMaxAllocationBytes = std::size_t{16} * 1024;

inline constexpr std::string_view kTrustDirectory = "/etc/vgpu/trust.d";
inline constexpr std::string_view kRuntimeConfig = "/etc/vgpu/runtime.toml";
inline constexpr std::string_view kRunDirectory = "/run/vgpu";
inline constexpr std::string_view kPodsDirectory = "/run/vgpu/pods";
inline constexpr std::string_view kNodeFile = "/run/vgpu/node";
// One directory per GPU container, <id>-<first 8 hex digits of SHA-256 of the runtime root>, mounted into it: `host`, `usage`,
// `driver/{cuda,nvml}.<0..7>`. Mode 0755 below 0711 parents, no secrets.
inline constexpr std::string_view kContainersDirectory = "/run/vgpu/containers";
// What the wrapper remembers of the same container, not mounted, mode 0600 below 0700: named like the directory above.
inline constexpr std::string_view kStateDirectory = "/run/vgpu/state";

}  // namespace vgpu::api
