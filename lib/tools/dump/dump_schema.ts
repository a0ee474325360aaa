/**
 * All fields of a dump. A field that is not listed is neither written nor read; docs/dump.md has the same
 * list. The messages are the end of a sentence: `has to be …`.
 */
import * as v from "valibot";
import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { NODE } from "../../api/kinds/node.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTING_OBJECT_KINDS } from "../../api/kinds/routing_objects.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { schemaNode } from "../../api/schema_node.ts";
import { POLICY_KINDS } from "../../app/policy/policy_settings.ts";
import { SERVICE_KINDS } from "../../app/service/service_subscriptions.ts";
import { CONTROLLER_NAMES } from "../../engine/loop_id.ts";
import { DUMP_KIND } from "../../kube/manifests/manifest_objects.ts";
import { tryParseCidr } from "../../net/cidr.ts";
import { IP_FAMILIES, tryParseIpAddress } from "../../net/ip_address.ts";
import { type Port, PROTOCOLS, tryParsePort } from "../../net/port.ts";
import { BACKEND_MODES } from "../../proxy/backend.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { REPORT_SCHEMA } from "../../routing/layer2_member.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { StatusReport } from "../status/status_report.ts";

/** The version of the format; another number is another set of fields. */
export const FORMAT_VERSION = 2;

const TEXT = "has to be text";
/** Longest name of an object, of the node, or of a feature. */
const LONGEST_NAME = 253;

/** Text in one line that is safe to print: no control characters, text direction or line breaks. */
export const plainText = v.pipe(
  v.string(TEXT),
  v.regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u, "has to be text without control characters"),
);

/** Text of other programs: of a tool, a library, the API server. Secrets are removed from it. */
export const foreignText = v.string(TEXT);

const labels = v.record(plainText, plainText, "has to be an object");
const flag = v.boolean("has to be true or false");

export const number = v.pipe(
  v.number("has to be a number"),
  v.finite("has to be a finite number"),
);

/** A time in the format of RFC 3339. */
const time = v.pipe(
  v.string(TEXT),
  v.regex(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/, "has to be a time such as 2026-01-02T03:04:05Z"),
  v.check((text) => !Number.isNaN(Date.parse(text)), "has to be a valid time"),
);

/** Name of an object or of a node. The characters are those that rules and chains may have. */
const objectName = v.pipe(
  v.string(TEXT),
  v.regex(
    /^[A-Za-z0-9](?:[-A-Za-z0-9._]*[A-Za-z0-9])?$/,
    "has to be a name of letters, digits, '-' and '.', with a letter or digit at both ends",
  ),
  v.maxLength(LONGEST_NAME, `has to be a name of at most ${LONGEST_NAME} characters`),
);

/** Name of a port; the empty one for the only port of a Service. */
const portName = v.pipe(
  v.string(TEXT),
  v.regex(/^[-A-Za-z0-9._]{0,63}$/, "has to be at most 63 letters, digits and '-'"),
);

function parsed<Value>(parse: (text: string) => Value | undefined, message: string) {
  return v.pipe(
    v.string(TEXT),
    v.rawTransform(({ dataset, addIssue, NEVER }): Value => {
      const value = parse(dataset.value);
      if (value !== undefined) return value;
      addIssue({ message });
      return NEVER;
    }),
  );
}

const ipAddress = parsed(tryParseIpAddress, "has to be an IP address");
const cidr = parsed(tryParseCidr, "has to be a CIDR such as 10.96.0.0/12");

const port = v.pipe(
  number,
  v.check((port) => tryParsePort(port) !== undefined, "has to be a whole number from 1 to 65535"),
  v.transform((port) => port as Port),
);

const servicePort = v.pipe(plainText, v.transform((text) => text as ServicePortKey));

function oneOf<const Names extends readonly string[]>(names: Names) {
  const message = `has to be ${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
  return v.picklist(names, message);
}

const mode = oneOf(BACKEND_MODES);
const ipFamily = oneOf(IP_FAMILIES);
const controller = oneOf(CONTROLLER_NAMES);
const outcome = oneOf(["applied", "failed"]);

/** Fields; any other one is dropped, in writing as in reading. */
export function fields<Entries extends v.ObjectEntries>(
  entries: Entries,
): v.ObjectSchema<Entries, string> {
  return v.object(entries, "has to be an object");
}

export function list<Entry extends v.GenericSchema>(entry: Entry): v.ArraySchema<Entry, string> {
  return v.array(entry, "has to be a list");
}

/** Fields with names that are not known in advance, such as those of counters. */
export function table<Value extends v.GenericSchema>(
  value: Value,
): v.RecordSchema<typeof objectName, Value, string> {
  return v.record(objectName, value, "has to be an object");
}

export const optional = v.exactOptional;

/** Objects, by the name of their resource. */
type DumpedObjects = Readonly<Record<string, readonly KubeObject[]>>;

/** The objects of these kinds, and of those that may be absent. */
export function dumpedObjects(
  kinds: readonly KindSpec[],
  others: readonly KindSpec[] = [],
): v.GenericSchema<unknown, DumpedObjects> {
  const lists = fields(Object.fromEntries([
    ...kinds.map(({ plural, schema }) => [plural, list(objectSchema(schema))] as const),
    ...others.map(({ plural, schema }) => [plural, optional(list(objectSchema(schema)))] as const),
  ]));
  return lists as unknown as v.GenericSchema<unknown, DumpedObjects>;
}

/** The schema of a dump for a value of an object. */
function objectSchema(schema: v.GenericSchema): v.GenericSchema {
  const { node } = schemaNode(schema);
  switch (node.type) {
    case "text":
      if (node.format === "name") return objectName;
      return node.format === "port name" ? portName : plainText;
    case "number":
      return number;
    case "flag":
      return flag;
    case "number or text":
      return v.union([number, portName]);
    case "list":
      return list(objectSchema(node.item));
    case "names": {
      if (node.names === "all") return labels;
      const names = node.names.filter((name) => !node.secret.includes(name));
      return fields(Object.fromEntries(names.map((name) => [name, optional(plainText)])));
    }
    case "fields": {
      const entries = Object.entries(node.entries).map(([name, entry]) => {
        const { isOptional, fallback } = schemaNode(entry);
        const inner = objectSchema(entry);
        return [name, isOptional && fallback === undefined ? optional(inner) : inner] as const;
      });
      return fields(Object.fromEntries(entries));
    }
  }
}

/** A value of a setting. */
const setting = optional(
  v.nullable(v.union([plainText, number, flag, list(v.union([plainText, number]))])),
);

/** A block of settings with these names, and blocks in it. */
function settings(names: string, blocks: v.ObjectEntries = {}) {
  return optional(fields({
    ...Object.fromEntries(names.split(" ").map((name) => [name, setting])),
    ...blocks,
  }));
}

const SELECTOR = optional(fields({
  matchLabels: optional(labels),
  matchExpressions: optional(
    list(fields({ key: plainText, operator: plainText, values: optional(list(plainText)) })),
  ),
}));

const IMPORTED = optional(list(settings("prefix minLength maxLength").wrapped));

/** The path of the password file says that there is one; it is not the real path. */
const PEER = settings(
  "name address port as passwordFile localAddress multihopTtl holdTimeSeconds bfd " +
    "gracefulRestartSeconds prepend nextHopSelf bothFamilies otherNextHop",
  {
    passwordSecret: settings("name key"),
    import: settings("defaultRoute", { prefixes: IMPORTED, clusterPrefixes: IMPORTED }),
    nodeSelector: SELECTOR,
  },
);

const ROUTING = settings(
  "enabled loadBalancerClasses defaultLoadBalancerClass objects announce leaseNamespace " +
    "leaseDurationSeconds",
  {
    pools: optional(list(
      settings("name addresses autoAssign priority announce", {
        namespaceSelector: SELECTOR,
        serviceSelector: SELECTOR,
        nodeSelector: SELECTOR,
      }).wrapped,
    )),
    layer2: settings("interfaces announceIntervalSeconds"),
    podNetwork: settings("routes overlay cniConfig mtu portMappings masquerade"),
    bgp: settings(
      "enabled localAs routerId mesh nodeAnnotations externalIpRanges communities largeCommunities " +
        "localPreference",
      {
        peers: optional(list(PEER.wrapped)),
        advertise: settings("loadBalancerIps externalIps clusterIps podCidrs serviceRanges"),
        imports: settings("external defaultRoute table metric limitPerPeer"),
      },
    ),
  },
);

/**
 * Every setting of kube-proxy's configuration that rules depend on, in the form of its file, without paths,
 * credentials and the address of the API server. Reading is left to the parser of the file.
 */
const PROXY: v.GenericSchema<unknown, Readonly<Record<string, unknown>>> = settings(
  "hostnameOverride bindAddress healthzBindAddress metricsBindAddress mode detectLocalMode clusterCIDR " +
    "nodePortAddresses configSyncPeriod",
  {
    featureGates: optional(table(flag)),
    iptables: settings("masqueradeBit masqueradeAll localhostNodePorts syncPeriod minSyncPeriod"),
    ipvs: settings(
      "scheduler excludeCIDRs strictARP tcpTimeout tcpFinTimeout udpTimeout syncPeriod minSyncPeriod",
    ),
    nftables: settings("masqueradeBit masqueradeAll syncPeriod minSyncPeriod"),
    detectLocal: settings("bridgeInterface interfaceNamePrefix"),
    conntrack: settings(
      "maxPerCore min tcpEstablishedTimeout tcpCloseWaitTimeout tcpBeLiberal udpTimeout udpStreamTimeout",
    ),
    networkPolicy: settings(
      "enabled mode start deny logPerMinute logGroup cutConnections minSyncPeriod",
    ),
    routing: ROUTING,
  },
).wrapped;

/** The configuration. */
export const CONFIGURATION = fields({
  proxy: PROXY,
  relay: fields({
    serviceCidrs: list(cidr),
    externalIpRanges: list(cidr),
    addressMode: oneOf(["auto", "each", "anyip", "none"]),
    udpTimeoutMs: number,
    userspaceEngine: v.optional(oneOf(["auto", "deno", "syscalls"]), "deno"),
    userspaceWorkers: v.union([v.literal("auto"), number], "has to be auto or a number"),
    drainTimeoutMs: number,
    ipvsDrainTimeoutMs: number,
    maxConnectionsPerService: number,
    endpointsFallback: flag,
    serviceCounters: flag,
  }),
});

/** The section of routing. It has its own Services and Nodes, with more fields than those of Services. */
export const DUMPED_ROUTING = fields({
  objects: dumpedObjects([ROUTED_SERVICE, ROUTED_NODE], ROUTING_OBJECT_KINDS),
  /** Nodes with a valid Lease; absent if none are followed. */
  live: optional(list(objectName)),
  /** What these nodes say of themselves. Absent in dumps of older versions. */
  reports: optional(list(v.object({ node: objectName, ...REPORT_SCHEMA.entries }))),
  isDraining: flag,
  /** The networks of the node's interfaces. */
  networks: list(cidr),
});

const quarantined = list(fields({
  key: servicePort,
  address: optional(plainText),
  reason: foreignText,
  retryAt: optional(time),
}));

const traffic = optional(fields({
  bytesFromClients: number,
  bytesToClients: number,
  packetsFromClients: optional(number),
  packetsToClients: optional(number),
  opened: optional(number),
  open: optional(number),
}));

const service = fields({
  name: plainText,
  protocol: plainText,
  addresses: list(fields({
    role: oneOf(["ClusterIP", "ExternalIP", "LoadBalancer", "NodePort", "StandIn"]),
    address: ipAddress,
    port,
    protocol: oneOf(PROTOCOLS),
    state: oneOf(["serving", "refusing", "quarantined"]),
    load: optional(fields({
      active: number,
      inactive: number,
      rates: optional(fields({
        connections: number,
        packetsIn: number,
        packetsOut: number,
        bytesIn: number,
        bytesOut: number,
      })),
    })),
  })),
  endpoints: list(fields({
    address: plainText,
    state: oneOf(["ready", "not ready", "serving, terminating", "terminating"]),
    local: flag,
    health: optional(fields({
      state: oneOf(["unchecked", "healthy", "unhealthy", "ejected"]),
      reason: optional(foreignText),
      since: time,
    })),
  })),
  otherPorts: optional(list(plainText)),
  connections: optional(number),
  traffic,
  settings: optional(list(plainText)),
  quarantined: optional(foreignText),
  retryAt: optional(time),
});

const lastSync = { at: time, durationMs: number, full: flag, operations: table(number) };

const loop = {
  family: ipFamily,
  controller: optional(controller),
  summary: plainText,
  lastSync: optional(fields(lastSync)),
  pending: flag,
  failures: number,
  lastError: optional(foreignText),
  quarantined,
};

/** The report of `kube-relay status`, without annotations of the Node. */
const STATUS = fields({
  version: plainText,
  pid: number,
  startedAt: time,
  phase: plainText,
  largestEventLoopDelayMs: number,
  node: fields({ name: objectName, zone: optional(plainText) }),
  sources: list(fields({
    name: foreignText,
    state: foreignText,
    problems: list(foreignText),
  })),
  hostSettings: list(fields({
    name: plainText,
    wanted: plainText,
    found: optional(foreignText),
    state: oneOf(["kept", "changed", "refused"]),
    purpose: plainText,
    reason: optional(foreignText),
    cure: optional(plainText),
  })),
  traffic,
  families: list(fields({
    ...loop,
    mode,
    lastSync: optional(fields({ ...lastSync, services: number })),
    services: list(service),
  })),
  controllers: optional(list(fields({
    controller,
    families: list(fields(loop)),
    facts: list(fields({ name: plainText, text: foreignText })),
  }))),
});

/** Fields of a type that another lacks, at any depth. */
type Lacking<Wanted, Has> = Wanted extends string | number | boolean | undefined ? never
  : Wanted extends readonly (infer W)[] ? Has extends readonly (infer H)[] ? Lacking<W, H> : never
  : {
    [Name in keyof Wanted]-?: Name extends keyof Has
      ? Lacking<NonNullable<Wanted[Name]>, NonNullable<Has[Name]>>
      : Name;
  }[keyof Wanted];

/** Does not compile when the status gets a field that is neither here nor left out on purpose. */
export type LeftOut = Check<Lacking<StatusReport, v.InferOutput<typeof STATUS>>>;
/** A dump has no brief status, so no counts. */
type Check<Names extends "annotations" | "counts"> = Names;

/** The answer to `/changes`. */
const CHANGES: v.GenericSchema<unknown, ChangesReport> = fields({
  entries: list(fields({
    sequence: number,
    at: time,
    kind: oneOf(["sync", "flows", "quarantine", "drift", "repair", "health", "configuration"]),
    controller: optional(controller),
    family: optional(ipFamily),
    outcome: optional(outcome),
    waitedMs: optional(number),
    tookMs: optional(number),
    lines: list(fields({
      text: foreignText,
      tone: optional(oneOf(["good", "warning", "bad", "effect", "detail", "title"])),
      object: optional(foreignText),
      item: optional(foreignText),
    })),
  })),
  forgotten: number,
  syncs: list(fields({
    controller: optional(controller),
    family: ipFamily,
    at: number,
    durationMs: number,
    outcome,
  })),
});

const identity = {
  kind: v.literal(DUMP_KIND, `has to be '${DUMP_KIND}'`),
  formatVersion: v.literal(FORMAT_VERSION, `has to be ${FORMAT_VERSION}`),
  writtenAt: time,
  versions: fields({ kubeRelay: plainText, deno: plainText, kernel: optional(plainText) }),
};

/** The fields from which a plan is computed. */
const inputs = {
  mode,
  nodeName: objectName,
  configuration: CONFIGURATION,
  objects: dumpedObjects(SERVICE_KINDS, POLICY_KINDS),
  families: list(fields({
    family: ipFamily,
    interfaceAddresses: optional(list(ipAddress)),
    primaryAddress: optional(ipAddress),
    hosts: optional(list(fields({
      address: ipAddress,
      owner: foreignText,
      ports: optional(list(number)),
      isNode: optional(flag),
    }))),
    facts: optional(fields({ features: table(flag), beLiberal: optional(flag) })),
    quarantined: optional(quarantined),
  })),
  /** The sections of the other controllers that run. */
  controllers: optional(fields({
    /** Its other objects are with those of Services. `tool` is absent if none was chosen yet. */
    "network-policy": optional(fields({
      tool: optional(plainText),
      families: list(ipFamily),
      /** All Nodes, if a policy names nodes. */
      nodes: optional(list(objectSchema(NODE.schema))),
    })),
    routing: optional(DUMPED_ROUTING),
  })),
};

/** The reports about the node. */
const outcomes = {
  status: optional(STATUS as v.GenericSchema<unknown, StatusReport>),
  changes: optional(CHANGES),
};

/** Every field of a dump. */
export const DUMP_SCHEMA = fields({ ...identity, ...inputs, ...outcomes });
export const INPUT_PART = fields({ ...identity, ...inputs });
export const OUTCOME_PART = fields({ ...identity, ...outcomes });

/** A dump from which a plan is computed. */
export type InputDump = v.InferOutput<typeof INPUT_PART>;
