import type { IpFamily } from "../../net/ip_address.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import type { ManifestFileSystem } from "../../kube/manifests/manifest_files.ts";
import { createSysctl } from "../../os/sysctl.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import { TUNNEL_PREFIX } from "../../routing/pod_network_plan.ts";
import type { PodNetworkSettings } from "../../routing/routing_settings.ts";

/** The edges that the network of pods is examined by. */
interface PodNetworkDependencies {
  readonly commands: CommandRunner;
  readonly files: Pick<ManifestFileSystem, "list">;
}

interface PodNetworkExamination {
  readonly podNetwork: PodNetworkSettings;
  readonly families: readonly IpFamily[];
  readonly signal: AbortSignal;
}

/** Where container runtimes look for plugins, unless they are configured otherwise. */
const PLUGIN_FOLDER = "/opt/cni/bin";
/** Container runtimes read these, in the order of their names. */
const CNI_FILE = /\.(conf|conflist|json)$/;

const TUNNELS = {
  IPv4: { kind: "ipip", ends: ["127.0.0.1", "127.0.0.2"], module: "ipip" },
  IPv6: { kind: "ip6tnl", ends: ["fd00::1", "fd00::2"], module: "ip6_tunnel" },
} as const;

/** Finds obstacles that keep a start from routing between pods. */
export async function examinePodNetwork(
  dependencies: PodNetworkDependencies,
  examination: PodNetworkExamination,
): Promise<readonly HostFinding[]> {
  const { podNetwork: { overlay, cniConfig, portMappings } } = examination;
  return [
    ...overlay === "off" ? [] : await tunnelFindings(dependencies, examination),
    ...await forwardingFindings(dependencies, examination),
    ...cniConfig === undefined ? [] : await cniFindings(dependencies, { cniConfig, portMappings }),
  ];
}

/** Makes a tunnel and removes it again: only the kernel knows whether it can load the module. */
async function tunnelFindings(
  { commands }: PodNetworkDependencies,
  { families, signal }: PodNetworkExamination,
): Promise<readonly HostFinding[]> {
  const evidence: string[] = [];
  const modules: string[] = [];
  for (const family of families) {
    const { kind, ends: [local, remote], module } = TUNNELS[family];
    const device = `${TUNNEL_PREFIX}probe${family.at(-1)}`;
    const args = ["link", "add", device, "type", kind, "local", local, "remote", remote];
    const { code, stderr } = await commands.run("ip", args, { signal });
    if (code === 0) await commands.run("ip", ["link", "del", device], { signal });
    // Missing rights are another finding.
    else if (/Unknown device type|not supported/.test(stderr)) {
      evidence.push(`ip link add type ${kind}: ${stderr.trim()}`);
      modules.push(module);
    }
  }
  if (evidence.length === 0) return [];
  return [{
    id: "pod-tunnels",
    severity: "warning",
    summary: "The kernel cannot make the tunnels of --overlay",
    evidence,
    cure: `install a kernel with ${modules.join(" and ")}, and load the modules at boot`,
  }];
}

async function forwardingFindings(
  { commands }: PodNetworkDependencies,
  { families }: PodNetworkExamination,
): Promise<readonly HostFinding[]> {
  const names = families.map((family) =>
    family === "IPv4" ? "net.ipv4.ip_forward" : "net.ipv6.conf.all.forwarding"
  );
  const { values } = await createSysctl(commands).read(names);
  const evidence = names.filter((name) => values.get(name) === "0").map((name) => `${name} is 0`);
  if (evidence.length === 0) return [];
  return [{
    id: "pod-forwarding",
    severity: "warning",
    summary: "The kernel forwards no packets between pods and other nodes",
    evidence,
    cure:
      "set the settings to 1 in /etc/sysctl.d; the CNI plugin bridge does so with the first pod",
  }];
}

async function cniFindings(
  { files }: PodNetworkDependencies,
  { cniConfig, portMappings }: { readonly cniConfig: string; readonly portMappings: boolean },
): Promise<readonly HostFinding[]> {
  const at = cniConfig.lastIndexOf("/");
  const [folder, file] = [cniConfig.slice(0, at) || "/", cniConfig.slice(at + 1)];
  const plugins = await files.list(PLUGIN_FOLDER).catch(() => undefined) ?? [];
  const missing = ["bridge", "host-local", ...portMappings ? ["portmap"] : []]
    .filter((name) => !plugins.includes(name));
  const before = (await files.list(folder).catch(() => undefined) ?? [])
    .filter((name) => CNI_FILE.test(name) && name < file);
  return [
    ...missing.length === 0 ? [] : [{
      id: "cni-plugins",
      severity: "warning" as const,
      summary: "Pods cannot start: plugins of the CNI configuration are missing",
      evidence: missing.map((name) => `${PLUGIN_FOLDER}/${name} does not exist`),
      cure: "install the CNI plugins (Debian package containernetworking-plugins, in " +
        "/usr/lib/cni), or point the container runtime to their folder",
    }],
    ...before.length === 0 ? [] : [{
      id: "cni-other",
      severity: "warning" as const,
      summary: "Another CNI configuration comes first, so container runtimes use it",
      evidence: before.map((name) => `${folder}/${name}`),
      cure: `remove it with its software, or name a file that comes first, instead of ${file}`,
    }],
  ];
}
