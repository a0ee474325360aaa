/**
 * The network of pods on this node: tunnels and routes to the pods of other nodes, the rule that
 * masquerades traffic out of the cluster, and the CNI configuration. Each sync reads the machine and
 * writes the difference, so an earlier run needs no record, and nothing is lost by a restart. What
 * cannot be written is reported, and everything else is written.
 *
 * @module
 */
import { type OwnFileKind, readOwnFile, writeOwnFile } from "../own_file.ts";
import {
  hasNft,
  IptablesMasquerade,
  masqueradeText,
  type MasqueradeTool,
  NftMasquerade,
} from "./masquerade.ts";
import {
  addressLine,
  type ChosenRoute,
  deleteLinkLine,
  IpRunner,
  type Link,
  type Route,
  routeLine,
} from "../../iproute/ip_runner.ts";
import { watchLinks } from "../../iproute/link_watch.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import type {
  CleanupReport,
  DataPlaneEdges,
  Quarantined,
  SyncReport,
} from "../../../lib/engine/data_plane.ts";
import {
  type Change,
  type KernelObject,
  type Objects,
  Reconciler,
} from "../../../lib/engine/reconciler.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { rangeOf } from "../../../lib/net/address_range.ts";
import { type Cidr, cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { addressAt, IP_FAMILIES, type IpFamily, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { RoutingDifference } from "../../../lib/routing/compare_layer2.ts";
import {
  type PodNetworkPlan,
  type PodRoute,
  type PodTunnel,
  TUNNEL_PREFIX,
} from "../../../lib/routing/pod_network_plan.ts";
import { POD_ROUTE_METRIC } from "../../../lib/routing/routing_settings.ts";

/** The options of {@linkcode PodNetworkDataPlane}. */
export interface PodNetworkOptions {
  /** Files of CNI configurations that an earlier run may have written. */
  readonly cniFiles: readonly string[];
  /**
   * Whether a cleanup looks at iptables even if nftables works here. The look may load modules.
   * @default {false}
   */
  readonly isThorough?: boolean;
}

/** Marks the routes of kube-relay in the kernel. iproute2 gives the number no name. */
const POD_ROUTE_PROTOCOL = 75;

/** What the header of a tunnel takes from the MTU. */
const OVERHEAD: Readonly<Record<IpFamily, number>> = { IPv4: 20, IPv6: 40 };
/** Of Ethernet, in case no interface has the address of the node. */
const USUAL_MTU = 1_500;
const LONGEST_ALIAS = 255;

const MASQUERADE = { kind: "table", name: "masquerade" } as const;
/** The kinds of objects in differences, where users know them by another name. */
const DIFFERENCES: Readonly<Record<string, string>> = {
  ...{ route: "pod route", tunnel: "pod tunnel", file: "CNI configuration" },
};

/** An object of the plan. */
interface PodObject extends KernelObject {
  /** The key under which it is in quarantine. */
  readonly owner: string;
  /** For `ip -batch`. `found`: the device as it is, of a tunnel; whether the route is there. */
  readonly lines?: (found: Link | Route | undefined) => readonly string[];
}

/** Carries plans out. Its keys are nodes (`Node NAME`) and the other parts. */
export class PodNetworkDataPlane implements AsyncDisposable {
  readonly #edges: Omit<DataPlaneEdges, "random">;
  readonly #options: PodNetworkOptions;
  readonly #turns = new OneAtATime();
  readonly #engine: Reconciler<string, PodObject, string>;
  #plan: PodNetworkPlan | undefined;
  #objects: ReadonlyMap<string, PodObject> = new Map();
  #links: readonly Link[] = [];
  /** The links and routes that any run made, by name. */
  #own = new Map<string, Link | Route>();
  #tool: MasqueradeTool | undefined;
  /** Whether rules of an earlier run were looked for. */
  #hasNoRules = false;
  /** Objects that exist and cannot be read, or are foreign, by kind. */
  readonly #unread = new Map<string, Error>();
  /** What the last sync could not write, by the name of the object. */
  readonly #failed = new Map<string, Quarantined<string>>();
  /** What the last sync wrote. */
  #operations: Record<string, number> = {};

  constructor(edges: Omit<DataPlaneEdges, "random">, options: PodNetworkOptions) {
    this.#edges = edges;
    this.#options = options;
    this.#engine = new Reconciler(edges, {
      keys: () => {
        const plan = this.#plan;
        const objects = plan ? podObjects(plan, this.#links, this.#tool) : [];
        this.#objects = new Map(objects.map((object) => [object.name, object]));
        return this.#objects.keys();
      },
      arrange: (key) => this.#objects.get(key),
      objectsOf: (object) => [object],
      ownerOf: ({ owner }) => owner,
      read: () => this.#read(),
      begin: () => {
        const changes: Change<string>[] = [];
        return {
          add: ({ kind, name }, before, after, owner) =>
            changes.push({ kind, name, before, after, owner }),
          commit: () => this.#write(changes),
        };
      },
    });
  }

  /** One bad Node, a folder that cannot be written, or a missing `nft` stops nothing else. */
  sync(plan: PodNetworkPlan): Promise<SyncReport<string>> {
    return this.#turns.run(async () => {
      this.#plan = plan;
      await this.#engine.sync();
      const quarantined = [
        ...plan.problems.map(({ node, reason }) => ({ key: `Node ${node}`, reason })),
        ...this.#failed.values(),
        ...(await this.#shadowed(this.#failed)).map(({ node, name, found }) => ({
          key: `Node ${node}`,
          reason: `packets to ${name} do not take the route to the node: ${found}. Remove it`,
        })),
      ];
      return { full: true, operations: this.#operations, quarantined };
    });
  }

  /** The text that a machine without any of it would be given. */
  *render(plan: PodNetworkPlan): Generator<string, void, void> {
    const objects = podObjects(plan, [], undefined);
    yield "# Routes and tunnels, for 'ip -batch'.\n";
    for (const line of objects.flatMap(({ lines }) => lines?.(undefined) ?? [])) yield `${line}\n`;
    if (plan.masquerade) {
      yield "# Traffic of pods that leaves the cluster, for 'nft -f'.\n";
      yield masqueradeText(plan.masquerade);
    }
    for (const { kind, name, text } of objects) if (kind === "file") yield `# ${name}\n${text}`;
  }

  /** How the machine differs. Changes nothing. */
  compare(plan: PodNetworkPlan): Promise<readonly RoutingDifference[]> {
    return this.#turns.run(async () => {
      this.#plan = plan;
      const changes = await this.#engine.compare();
      const unread = this.#unread.get(MASQUERADE.kind);
      if (unread) throw unread;
      const missing = changes.filter(({ before }) => before === undefined);
      const shadowed = await this.#shadowed(new Set(missing.map(({ name }) => name)));
      return [
        ...changes.map(({ kind: object, name, before, after }): RoutingDifference => {
          const isShown = object === "route" || object === "tunnel";
          return {
            ...{ object: DIFFERENCES[object] ?? object, name },
            kind: after === undefined ? "extra" : before === undefined ? "missing" : "altered",
            ...(isShown && after !== undefined && { wanted: after }),
            ...((isShown || this.#unread.has(object)) && before !== undefined && { found: before }),
          };
        }),
        ...shadowed.map(({ node: _, ...difference }) => difference),
      ];
    });
  }

  /** Calls back when a link or an address of the machine changed, until the signal is aborted. */
  watch(onChange: () => void, signal: AbortSignal): Promise<void> {
    const { logger } = this.#edges;
    const message = "Cannot watch the links of this machine; they are read at an interval";
    const onEnd = (error: unknown) => logger.verbose(1, message, { error });
    return watchLinks(this.#edges, onChange, onEnd, signal);
  }

  /** Removes everything that any run added, or only reports it. */
  cleanup({ dryRun } = { dryRun: false }): Promise<CleanupReport> {
    return this.#turns.run(async () => {
      const { commands } = this.#edges;
      const { cniFiles, isThorough = false } = this.#options;
      const run = new RemovalRun({ commands }, { dryRun });
      const devices = [...await this.#readDevices()].flatMap(([kind, texts]) =>
        [...texts.keys()].map((name) => ({ kind, name, after: undefined }))
      );
      if (devices.length > 0) {
        const lines = devices.flatMap((each) => this.#linesOf(each));
        await run.do("routes to pods and tunnels", {
          command: ["ip", "-force", "-batch", "-"],
          input: () => lines.map((line) => `${line}\n`),
          removes: devices.map(({ kind, name }) =>
            `${kind} ${name}${kind === "route" ? " to pods" : ""}`
          ),
        });
      }
      // A tool that fails today may have written the table: the look at the table then has the reason.
      const isNft = await hasNft(commands).catch(() => true);
      const tools: MasqueradeTool[] = isNft ? [new NftMasquerade(commands)] : [];
      if (!isNft || isThorough) tools.push(new IptablesMasquerade(commands));
      for (const tool of tools) {
        try {
          for await (const step of tool.removals()) await run.do(tool.place, step);
        } catch (error) {
          run.unseen(tool.place, messageOf(error));
        }
      }
      for (const path of new Set(cniFiles)) {
        try {
          if (await readOwnFile(path, CNI_FILE) !== undefined) await run.removeFile(path);
        } catch (error) {
          run.keep(messageOf(error));
        }
      }
      return run.report();
    });
  }

  /** Routes stay: pods run without kube-relay. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turns.run(() => Promise.resolve());
  }

  async #read(): Promise<Objects> {
    this.#unread.clear();
    const found = new Map<string, ReadonlyMap<string, string>>();
    const attempt = async (
      kind: string,
      name: string,
      read: () => Promise<string | undefined>,
    ) => {
      const text = await read().catch((error) => {
        this.#unread.set(kind, error);
        return messageOf(error);
      });
      if (text !== undefined) found.set(kind, new Map([[name, text]]));
    };
    await attempt(MASQUERADE.kind, MASQUERADE.name, () => this.#readRules());
    for (const each of await this.#readDevices()) found.set(...each);
    const path = cniPath(this.#plan);
    if (path !== undefined) await attempt("file", path, () => readOwnFile(path, CNI_FILE));
    return found;
  }

  async #readRules(): Promise<string | undefined> {
    const { commands } = this.#edges;
    const isWanted = this.#plan?.masquerade !== undefined;
    // An earlier run may have written them. A machine that cannot have them has none.
    if (!isWanted && this.#hasNoRules) return undefined;
    this.#tool ??= await hasNft(commands)
      ? new NftMasquerade(commands)
      : new IptablesMasquerade(commands);
    const text = await this.#tool.read();
    this.#hasNoRules = !isWanted && text === undefined;
    return text;
  }

  /** The tunnels and routes of any run. A link of another kind with the name of a tunnel is foreign. */
  async #readDevices(): Promise<Objects> {
    const { commands } = this.#edges;
    this.#links = await new IpRunner(commands).links();
    const routes = (await Promise.all(
      IP_FAMILIES.map((family) =>
        new IpRunner(commands, { family }).routes("main", POD_ROUTE_PROTOCOL)
      ),
    )).flat();
    const tunnels = this.#links.filter(({ device, kind }) =>
      device.startsWith(TUNNEL_PREFIX) && (kind === "ipip" || kind === "ip6tnl")
    );
    this.#own = new Map<string, Link | Route>([
      ...tunnels.map((link) => [link.device, link] as const),
      ...routes.map((route) => [routeName(route), route] as const),
    ]);
    return new Map([
      // Routes are removed before the tunnels that they lead through.
      ["route", new Map(routes.map((route) => [routeName(route), pathText(route)]))],
      ["tunnel", new Map(tunnels.map((link) => [link.device, linkText(link)]))],
    ]);
  }

  /** The routes whose packets take another one, except those that are `missing`, by name. */
  async #shadowed(
    missing: { has(name: string): boolean },
  ): Promise<readonly (RoutingDifference & { readonly node: string })[]> {
    const found = [];
    for (const family of IP_FAMILIES) {
      const routes = (this.#plan?.routes ?? []).filter(({ destination }) =>
        cidrFamilyOf(destination) === family
      );
      // An address of a range stands for all of it.
      const samples = routes.map(({ destination }) => {
        const { first, last } = rangeOf(destination);
        return addressAt(first === last ? first : first + 1n, family);
      });
      const chosen = await new IpRunner(this.#edges.commands, { family }).chosenRoutes(samples);
      for (const [index, { destination: name, node }] of routes.entries()) {
        const route = chosen.get(samples[index]!);
        if (route === undefined || missing.has(name)) continue;
        if ("gateways" in route && route.protocol === `${POD_ROUTE_PROTOCOL}`) continue;
        const text = "gateways" in route ? chosenText(route) : `no packets: ${route.message}`;
        const place = { object: "pod route", name, node, kind: "altered" } as const;
        found.push({ ...place, found: `another program's route comes first: ${text}` });
      }
    }
    return found;
  }

  /** The lines that bring an object to its state. */
  #linesOf({ kind, name, after }: Pick<Change<string>, "kind" | "name" | "after">) {
    const found = this.#own.get(name);
    if (after !== undefined) return this.#objects.get(name)?.lines?.(found) ?? [];
    if (kind === "tunnel") return [deleteLinkLine(name)];
    const { source: _, ...route } = found as Route;
    return [routeLine("del", { ...route, protocol: POD_ROUTE_PROTOCOL })];
  }

  async #write(changes: readonly Change<string>[]): Promise<void> {
    this.#failed.clear();
    this.#operations = {};
    const attempt = async (kind: string, write: (change: Change<string>) => Promise<void>) => {
      for (const change of changes.filter((each) => each.kind === kind)) {
        try {
          const error = this.#unread.get(kind);
          if (error) throw error;
          await write(change);
          this.#done(change, undefined);
        } catch (error) {
          this.#done(change, messageOf(error));
        }
      }
    };
    // First, or the first connections over a new route would keep another source until they end.
    await attempt(MASQUERADE.kind, async () => await this.#tool?.write(this.#plan?.masquerade));
    const moves = changes.filter(({ kind }) => kind === "route" || kind === "tunnel");
    const items = moves.flatMap((change) =>
      this.#linesOf(change).map((line) => ({ change, line }))
    );
    const reasons = new Map<Change<string>, string>();
    const failures = await new IpRunner(this.#edges.commands).batch(items, ({ line }) => line);
    for (const [{ change, line }, { kind, message }] of failures) {
      const isGone = change.after === undefined && kind === "absent";
      // The lines after the first one fail because of it.
      if (isGone || reasons.has(change)) continue;
      reasons.set(change, `cannot ${line}: ${message}${remedyOf(line, message)}`);
    }
    for (const change of moves) this.#done(change, reasons.get(change));
    await attempt("file", async ({ name, after }) => {
      // Another program may have written it meanwhile.
      await readOwnFile(name, CNI_FILE);
      await writeOwnFile(name, CNI_FILE, after);
    });
  }

  #done({ kind, name, owner }: Change<string>, reason: string | undefined): void {
    const key = owner ?? (kind === MASQUERADE.kind ? name : `${kind} ${name}`);
    if (reason !== undefined) this.#failed.set(name, { key, reason });
    else this.#operations[`${kind}s`] = (this.#operations[`${kind}s`] ?? 0) + 1;
  }
}

/** Returns what a plan wants, in the order in which it is made. */
function podObjects(
  plan: PodNetworkPlan,
  links: readonly Link[],
  masquerade: Pick<MasqueradeTool, "textOf"> | undefined,
): readonly PodObject[] {
  const path = cniPath(plan);
  return [
    ...plan.masquerade && masquerade
      ? [{ ...MASQUERADE, text: masquerade.textOf(plan.masquerade), owner: MASQUERADE.name }]
      : [],
    ...plan.tunnels.map((tunnel) => {
      const { family } = tunnel;
      return tunnelObject(tunnel, plan.mtu ?? mtuOfNode(plan, links, family) - OVERHEAD[family]);
    }),
    ...plan.routes.map(routeObject),
    ...path === undefined
      ? []
      : [{ kind: "file", name: path, text: cniTextOf(plan, links), owner: "CNI configuration" }],
  ];
}

/** Without ranges of the node there is nothing better than what an earlier sync wrote. */
function cniPath(plan: PodNetworkPlan | undefined): string | undefined {
  return plan && plan.podCidrs.length > 0 ? plan.cni?.path : undefined;
}

function cniTextOf(plan: PodNetworkPlan, links: readonly Link[]): string {
  const { podCidrs, cni, isOverlay } = plan;
  // The MTU of the node's pods.
  const mtus = [...new Set(podCidrs.map(cidrFamilyOf))].map((family) =>
    mtuOfNode(plan, links, family) - (isOverlay ? OVERHEAD[family] : 0)
  );
  const portMappings = cni?.portMappings ?? false;
  return cniText({ podCidrs, portMappings, mtu: plan.mtu ?? Math.min(...mtus) });
}

function mtuOfNode({ addresses }: PodNetworkPlan, links: readonly Link[], family: IpFamily) {
  const own = addresses.find((each) => ipFamilyOf(each) === family);
  const link = links.find((each) => own !== undefined && each.addresses.includes(own));
  return link?.mtu ?? USUAL_MTU;
}

function tunnelObject(tunnel: PodTunnel, mtu: number): PodObject {
  const { device, local, node, remote, source } = tunnel;
  const addresses = source === undefined ? [] : [source];
  // The option that limits nesting takes 8 bytes of each packet, and some routers drop it.
  const [type, hops] = local.includes(":")
    ? ["ip6tnl mode ip6ip6 encaplimit none", "hoplimit"]
    : ["ipip", "ttl"];
  // `ip -batch` splits at blanks.
  const alias = `kube-relay:${node}`.slice(0, LONGEST_ALIAS);
  return {
    ...{ kind: "tunnel", name: device, owner: `Node ${node}` },
    text: linkText({ mtu, alias, isUp: true, addresses }),
    lines: (found) => [
      ...found
        ? []
        : [`link add ${device} type ${type} local ${local} remote ${remote} ${hops} 64`],
      `link set ${device} mtu ${mtu} alias ${alias} up`,
      ...addresses.map((address) => addressLine("replace", { address, device })),
      ...(found ? usedAddresses(found as Link) : []).filter((each) => !addresses.includes(each))
        .map((address) => addressLine("del", { address, device })),
    ],
  };
}

function linkText(link: Pick<Link, "mtu" | "isUp" | "alias" | "addresses">): string {
  const addresses = usedAddresses(link);
  return `a tunnel, ${link.alias ?? "no alias"}, MTU ${link.mtu}, ${link.isUp ? "up" : "down"}, ` +
    (addresses.length > 0 ? addresses.join(", ") : "no address");
}

function usedAddresses({ addresses }: Pick<Link, "addresses">): Link["addresses"] {
  return addresses.filter((each) => !each.startsWith("fe80:"));
}

function routeObject({ destination, node, gateway, tunnel, source }: PodRoute): PodObject {
  const route: Route = {
    destination,
    gateways: gateway === undefined ? [] : [gateway],
    ...(tunnel !== undefined && { device: tunnel }),
    ...(source !== undefined && { source }),
  };
  const marks = { metric: POD_ROUTE_METRIC, protocol: POD_ROUTE_PROTOCOL };
  return {
    ...{ kind: "route", name: destination, text: pathText(route), owner: `Node ${node}` },
    // `add` fails where another program has a route with the same metric, which stays.
    lines: (found) => [routeLine(found ? "replace" : "add", { ...route, ...marks })],
  };
}

/** A route with another metric is one of its own. */
function routeName({ destination = "default" as Cidr, metric }: Route): string {
  return metric === POD_ROUTE_METRIC ? destination : `${destination} metric ${metric ?? 0}`;
}

function pathText({ type, gateways, device, source }: Route): string {
  return [
    ...type === undefined ? [] : [type],
    ...gateways.map((each) => `via ${each}`),
    // The device of a gateway follows from it.
    ...device !== undefined && gateways.length === 0 ? [`through ${device}`] : [],
    ...source ? [`from ${source}`] : [],
  ].join(" ");
}

function chosenText({ type, destination, protocol, table, metric = 0, ...path }: ChosenRoute) {
  const properties = [
    ...protocol === undefined ? [] : [`protocol ${protocol}`],
    `metric ${metric}`,
    `table ${table ?? "main"}`,
  ];
  const words = [...type === undefined ? [] : [type], destination ?? "default", pathText(path)];
  return `${words.filter((word) => word !== "").join(" ")} (${properties.join(", ")})`;
}

/** Messages of the kernel that do not say what to do. */
function remedyOf(line: string, message: string): string {
  if (message.includes("Unknown device type")) {
    return "; the kernel has no such tunnels: load the module ipip (ip6_tunnel for IPv6)";
  }
  if (!message.includes("File exists")) return "";
  return line.startsWith("link add")
    ? "; another program has a tunnel with the same ends: remove it"
    : "; another program has a route with the same metric: remove it";
}

/** CNI ignores unknown fields; JSON has no comments. A file without the field is foreign. */
const OWNER_FIELD = "kubeRelay";
const OWNER_TEXT = "Written by kube-relay. Changes are overwritten.";
/** The bridge of pods, which the plugin makes. */
const BRIDGE = "kube-relay-pods";

/** Returns the text of the file. Version 0.4.0 is known to every container runtime in use. */
export function cniText(
  { podCidrs, mtu, portMappings }: {
    readonly podCidrs: readonly Cidr[];
    readonly mtu: number;
    readonly portMappings: boolean;
  },
): string {
  const bridge = {
    type: "bridge",
    bridge: BRIDGE,
    isDefaultGateway: true,
    // It would hide the addresses of pods from pods of other nodes. kube-relay knows those.
    ipMasq: false,
    mtu,
    ipam: { type: "host-local", ranges: podCidrs.map((subnet) => [{ subnet }]) },
  };
  const portmap = { type: "portmap", capabilities: { portMappings: true } };
  const list = {
    [OWNER_FIELD]: OWNER_TEXT,
    cniVersion: "0.4.0",
    name: "kube-relay",
    plugins: [bridge, ...portMappings ? [portmap] : []],
  };
  return `${JSON.stringify(list, undefined, 2)}\n`;
}

/** The file of the configuration. */
export const CNI_FILE: OwnFileKind = {
  name: "CNI configuration",
  isOwn(text) {
    try {
      return JSON.parse(text)?.[OWNER_FIELD] === OWNER_TEXT;
    } catch {
      return false;
    }
  },
};
