/**
 * A cluster of namespaces with echo servers in its pods, and kube-relay on its node fed by a folder of
 * manifests.
 */
import type { EndpointSlice } from "../../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../../lib/api/kinds/service.ts";
import { ADDRESSES, THIS_NODE } from "../builders/address_plan.ts";
import { testNode } from "../builders/builders.ts";
import { type ClusterTopology, createClusterTopology } from "./cluster_topology.ts";
import { startEchoServer } from "../drivers/echo_network.ts";
import { replaceFile } from "../builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "../builders/raw_objects.ts";
import { RelayProcess } from "./relay_process.ts";

/** Flags of every kube-relay in this cluster. */
export const RELAY_FLAGS: readonly string[] = [
  `--hostname-override=${THIS_NODE}`,
  `--cluster-cidr=${ADDRESSES.IPv4.podCidr},${ADDRESSES.IPv6.podCidr}`,
  "--iptables-min-sync-period=10ms",
];

/** Disposing of it ends and removes all. */
export class RelayScene implements AsyncDisposable {
  private constructor(readonly cluster: ClusterTopology, readonly folder: string) {}

  /** Makes the cluster; pods `pod-a1` (here) and `pod-b1` (other node) answer on port 8080. */
  static async create(): Promise<RelayScene> {
    const folder = await Deno.makeTempDir();
    await Deno.mkdir(`${folder}/manifests`);
    const cluster = await createClusterTopology();
    const scene = new RelayScene(cluster, folder);
    const { localPods, remotePods } = cluster;
    const families = [ADDRESSES.IPv4, ADDRESSES.IPv6];
    await startEchoServer(localPods[0], {
      name: "pod-a1",
      listen: families.map(({ localPods: [address] }) => ({ address, port: 8080 })),
    });
    await startEchoServer(remotePods[0], {
      name: "pod-b1",
      listen: families.map(({ remotePods: [address] }) => ({ address, port: 8080 })),
    });
    return scene;
  }

  /** Replaces all manifests. */
  async write(services: readonly Service[], slices: readonly EndpointSlice[]): Promise<void> {
    const objects = [
      ...rawObjects("Node", testNode()),
      ...rawObjects("Service", ...services),
      ...rawObjects("EndpointSlice", ...slices),
    ];
    await replaceFile(`${this.folder}/manifests/objects.yaml`, manifestText(objects));
  }

  /**
   * Starts kube-relay on the node, in userspace mode and fed by the manifests unless `args` say
   * otherwise.
   */
  start(
    args: readonly string[] = [],
    { by = [], source = [`--manifests=${this.folder}/manifests`] }: {
      readonly by?: readonly string[];
      readonly source?: readonly string[];
    } = {},
  ): RelayProcess {
    const { cluster: { node }, folder } = this;
    const mode = args.some((arg) => arg.startsWith("--mode=")) ? [] : ["--mode=userspace"];
    const all = [...source, ...RELAY_FLAGS, ...mode, ...args];
    return RelayProcess.start(node, { folder, args: all, by });
  }

  /** Runs `kube-relay --cleanup`; returns its output. */
  async cleanup(): Promise<string> {
    const { cluster: { node }, folder } = this;
    return await RelayProcess.run(node, { folder, args: ["--cleanup"] });
  }

  /** Everything of the node's network that kube-relay may touch, as text. */
  async snapshot(): Promise<string> {
    const { node } = this.cluster;
    return [
      await node.ip("addr show"),
      await node.ip("rule show"),
      await node.ip("-4 route show table all"),
      await node.ip("-6 route show table all"),
      await node.output("sysctl", ["net.ipv6.ip_nonlocal_bind", "net.ipv4.ip_nonlocal_bind"]),
    ].join("\n")
      // The kernel takes this mark from a new address in its own time.
      .replaceAll(" tentative", "");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster[Symbol.asyncDispose]();
    await Deno.remove(this.folder, { recursive: true });
  }
}
