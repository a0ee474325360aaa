/** Nodes with a pod each, and a router between their subnets that knows no pod. */
import { rawNode } from "./routing_relay.ts";
import type { RawObject } from "../../conformance/server.ts";
import { replaceFile } from "../builders/kubeconfig_file.ts";
import { manifestText } from "../builders/raw_objects.ts";
import { type EchoAddress, ProbeClient, startEchoServer } from "../drivers/echo_network.ts";
import { Namespace } from "./netns.ts";
import { RelayProcess } from "./relay_process.ts";

/** The port of the echo servers in pods and outside of the cluster. */
export const ECHO_PORT = 8080;

/** A node and its pod. */
export class PodNode {
  readonly namespace: Namespace;
  readonly pod: Namespace;
  readonly name: string;
  readonly addresses: readonly [string, string];
  readonly podAddresses: readonly [string, string];
  readonly podCidrs: readonly string[];
  readonly client: ProbeClient;
  readonly #folder: string;

  constructor(
    { namespace, pod, name, subnet, folder }: {
      readonly namespace: Namespace;
      readonly pod: Namespace;
      readonly name: string;
      readonly subnet: number;
      readonly folder: string;
    },
  ) {
    const index = name.charCodeAt(name.length - 1) - "a".charCodeAt(0) + 1;
    this.namespace = namespace;
    this.pod = pod;
    this.name = name;
    this.addresses = [`192.0.${subnet}.${index}`, `fd00:${subnet}::${index}`];
    this.podAddresses = [`10.180.${index}.10`, `fd00:180:${index}::10`];
    this.podCidrs = [`10.180.${index}.0/24`, `fd00:180:${index}::/64`];
    this.client = ProbeClient.start(pod);
    this.#folder = folder;
  }

  /** The path of the CNI configuration that its kube-relay writes. */
  get cniConfig(): string {
    return `${this.#folder}/${this.name}/net.d/10-pods.conflist`;
  }

  get folder(): string {
    return `${this.#folder}/${this.name}`;
  }

  /** The Node as the API has it. */
  raw(podCIDRs: readonly string[] = this.podCidrs): RawObject {
    const addresses = this.addresses.map((address) => ({ type: "InternalIP", address }));
    return rawNode(this.name, "", { spec: { podCIDRs }, status: { addresses } });
  }

  /** Starts kube-relay. Nodes come from the manifests. */
  start(args: readonly string[]): RelayProcess {
    return RelayProcess.start(this.namespace, {
      folder: this.folder,
      args: [
        ...["--routing", `--manifests=${this.#folder}/manifests`, "--conntrack-max-per-core=0"],
        ...[`--hostname-override=${this.name}`, ...args],
      ],
    });
  }

  /** Has `--cleanup` remove everything. Returns its output. */
  cleanUp(): Promise<string> {
    return RelayProcess.run(this.namespace, {
      folder: this.folder,
      args: ["--routing", `--cni-config=${this.cniConfig}`, "--cleanup"],
    });
  }

  /** The routes of kube-relay, of both families, one a line. */
  async routes(): Promise<readonly string[]> {
    const [four, six] = await Promise.all(
      ["-4", "-6"].map((flag) => this.namespace.ip(`${flag} route show table main proto 75`)),
    );
    return `${four}${six}`.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  }

  /** The tunnels of kube-relay, by name. */
  async tunnels(): Promise<readonly string[]> {
    const text = await this.namespace.ip("-o link show");
    return [...text.matchAll(/^\d+: (kr-pod-\w+)/gm)].map(([, name]) => name!).sort();
  }

  /** The address that the echo server at an address sees; or why there is no answer. */
  async seenBy(
    address: string,
    protocol: "TCP" | "UDP" = "TCP",
    timeoutMs?: number,
  ): Promise<string> {
    const answer = await this.client.probe({ protocol, address, port: ECHO_PORT }, timeoutMs);
    return answer.kind === "answered" ? answer.by.peer : answer.kind;
  }
}

/** The nodes, a router with an echo server, and the folder of manifests. */
export interface PodScene extends AsyncDisposable {
  readonly nodes: readonly PodNode[];
  /** Is in each subnet, at `.254`, and has no route to pods. */
  readonly router: Namespace;
  /** The folder of manifests. */
  readonly folder: string;
  /** Replaces the Nodes. */
  write(nodes: readonly RawObject[]): Promise<void>;
}

/** Makes nodes `node-a`, `node-b` …, each in the subnet 192.0.N.0/24 that is given for it. */
export async function createPodScene(subnets: readonly number[]): Promise<PodScene> {
  const names = subnets.map((_, index) => `node-${String.fromCharCode(97 + index)}`);
  const spaces = await Namespace.createAll(["router", ...names, ...names.map((one) => `p${one}`)]);
  const folder = await Deno.makeTempDir();
  const [router] = spaces as [Namespace];
  const nodes = names.map((name, index) =>
    new PodNode({
      ...{ name, folder, subnet: subnets[index]! },
      namespace: spaces[1 + index]!,
      pod: spaces[1 + names.length + index]!,
    })
  );
  const dispose = async () => {
    await Namespace.removeAll(spaces);
    await Deno.remove(folder, { recursive: true });
  };
  try {
    await connect(router, { nodes, subnets });
    await Deno.mkdir(`${folder}/manifests`);
    for (const node of nodes) await Deno.mkdir(node.folder);
    const listen = (addresses: readonly string[]): EchoAddress[] =>
      addresses.map((address) => ({ address, port: ECHO_PORT }));
    await startEchoServer(router, {
      name: "outside",
      listen: listen([...new Set(subnets)].flatMap((each) => routerAddresses(each))),
    });
    for (const { name, pod, podAddresses } of nodes) {
      await startEchoServer(pod, { name, listen: listen(podAddresses) });
    }
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    ...{ nodes, router, folder: `${folder}/manifests` },
    write: (raw) => replaceFile(`${folder}/manifests/nodes.yaml`, manifestText(raw)),
    [Symbol.asyncDispose]: dispose,
  };
}

function routerAddresses(subnet: number): [string, string] {
  return [`192.0.${subnet}.254`, `fd00:${subnet}::fe`];
}

async function connect(
  router: Namespace,
  { nodes, subnets }: { readonly nodes: readonly PodNode[]; readonly subnets: readonly number[] },
): Promise<void> {
  const forwarding = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"];
  await router.sysctl(...forwarding);
  for (const subnet of new Set(subnets)) {
    const [four, six] = routerAddresses(subnet);
    await router.ipBatch([
      `link add br${subnet} type bridge`,
      `addr add ${four}/24 dev br${subnet}`,
      `addr add ${six}/64 dev br${subnet}`,
      `link set br${subnet} up`,
    ]);
  }
  for (const [index, { namespace, pod, addresses, podAddresses }] of nodes.entries()) {
    const subnet = subnets[index]!;
    const [four, six] = routerAddresses(subnet);
    await namespace.sysctl(...forwarding);
    await router.ip(`link add n${index} type veth peer name eth0 netns ${namespace.name}`);
    await router.ip(`link set n${index} master br${subnet} up`);
    await namespace.ip(`link add pod type veth peer name eth0 netns ${pod.name}`);
    const gateways = podAddresses.map((each) => each.replace(/10$/, "1"));
    await namespace.ipBatch([
      `addr add ${addresses[0]}/24 dev eth0`,
      `addr add ${addresses[1]}/64 dev eth0`,
      "link set eth0 up",
      `route add default via ${four}`,
      `route add default via ${six}`,
      `addr add ${gateways[0]}/24 dev pod`,
      `addr add ${gateways[1]}/64 dev pod`,
      "link set pod up",
    ]);
    await pod.ipBatch([
      `addr add ${podAddresses[0]}/24 dev eth0`,
      `addr add ${podAddresses[1]}/64 dev eth0`,
      "link set eth0 up",
      `route add default via ${gateways[0]}`,
      `route add default via ${gateways[1]}`,
    ]);
  }
}
