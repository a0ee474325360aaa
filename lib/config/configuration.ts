/**
 * kube-proxy's configuration (`kubeproxy.config.k8s.io/v1alpha1`, the only version) with every value
 * parsed and every default filled in.
 *
 * Contains every field of upstream, including those without effect here, because files made by
 * kubeadm name them all. `networkPolicy` and `routing` are extensions. `null` and a missing key mean the
 * same, as upstream. A zero also means the default, but only in the fields that are not pointers upstream
 * (`zero: "default"`).
 *
 * @module
 */
import * as v from "valibot";
import { BACKEND_MODES, type BackendMode, MODE_TRAITS, nodePortEntries } from "../proxy/backend.ts";
import {
  type BlockValues,
  duration,
  flag,
  flushFrequency,
  group,
  integer,
  list,
  number,
  quantity,
  text,
  wanted,
} from "./configuration_fields.ts";
import { NETWORK_POLICY_ENTRIES } from "./network_policy.ts";
import { ROUTING_ENTRIES } from "./routing.ts";

/** `apiVersion` of the only version. */
export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";

/** `kind` of the configuration. */
export const KIND = "KubeProxyConfiguration";

/** Buffering of one log format; accepted, without effect. */
function logFormatOptions() {
  return group({ splitStream: flag(), infoBufferSize: quantity() });
}

/**
 * The longest time between two full syncs, which is the base of the health timeout, and the shortest time
 * from the end of a sync to the next one; 0 = none.
 */
function syncPeriods() {
  return {
    syncPeriod: duration("30s", { zero: "default" }),
    minSyncPeriod: duration("1s", { zero: "default" }),
  };
}

const ENTRIES = {
  featureGates: v.nullish(
    v.record(v.string(), v.boolean(wanted("true or false")), wanted("fields")),
    {},
  ),
  clientConnection: group({
    // Empty = the service account of the pod.
    kubeconfig: text(),
    acceptContentTypes: text(),
    contentType: text("application/vnd.kubernetes.protobuf"),
    // Requests per second; negative = unlimited.
    qps: number(5, { zero: "default" }),
    burst: integer(10, { zero: "default" }),
  }),
  logging: group({
    format: text("text"),
    flushFrequency: flushFrequency(),
    verbosity: integer(0),
    vmodule: v.nullish(
      v.array(v.object({ filePattern: text(), verbosity: integer(0) }), wanted("a list")),
      [],
    ),
    options: group({ text: logFormatOptions(), json: logFormatOptions() }),
  }),
  // Trimmed and in lower case; empty = the name of the machine.
  hostnameOverride: text(),
  // The node's own address in the primary family; nothing is bound to it.
  bindAddress: text("0.0.0.0"),
  healthzBindAddress: text(),
  metricsBindAddress: text(),
  bindAddressHardFail: flag(),
  enableProfiling: flag(),
  showHiddenMetricsForVersion: text(),
  // As written; the mode of `LoadedConfiguration` is the parsed form.
  mode: text(),
  iptables: group({
    masqueradeBit: integer(14),
    masqueradeAll: flag(),
    localhostNodePorts: flag(true),
    ...syncPeriods(),
  }),
  ipvs: group({
    syncPeriod: duration("30s", { zero: "default" }),
    minSyncPeriod: duration("0s"),
    scheduler: text(),
    excludeCIDRs: list(),
    strictARP: flag(),
    tcpTimeout: duration("0s"),
    tcpFinTimeout: duration("0s"),
    udpTimeout: duration("0s"),
  }),
  nftables: group({ masqueradeBit: integer(14), masqueradeAll: flag(), ...syncPeriods() }),
  // Of Windows; accepted, without effect.
  winkernel: group({
    networkName: text(),
    sourceVip: text(),
    enableDSR: flag(),
    rootHnsEndpointName: text(),
    forwardHealthCheckVip: flag(),
  }),
  detectLocalMode: text("ClusterCIDR"),
  detectLocal: group({ bridgeInterface: text(), interfaceNamePrefix: text() }),
  // One CIDR, or one of each family separated by a comma; empty = unknown.
  clusterCIDR: text(),
  // CIDRs, or only `primary`; empty = all addresses of the node.
  nodePortAddresses: list(),
  oomScoreAdj: integer(-999),
  conntrack: group({
    maxPerCore: integer(32768),
    min: integer(131072),
    tcpEstablishedTimeout: duration("24h"),
    tcpCloseWaitTimeout: duration("1h"),
    tcpBeLiberal: flag(),
    udpTimeout: duration("0s"),
    udpStreamTimeout: duration("0s"),
  }),
  configSyncPeriod: duration("15m", { zero: "default" }),
  // A leftover of kube-proxy's old userspace mode; accepted, without effect.
  portRange: text(),
  windowsRunAsService: flag(),
  networkPolicy: group(NETWORK_POLICY_ENTRIES),
  routing: group(ROUTING_ENTRIES),
} as const;

/** The whole configuration, with upstream's field names and the extensions. Times are milliseconds. */
export type KubeProxyConfiguration = BlockValues<typeof ENTRIES>;
export type IptablesConfiguration = KubeProxyConfiguration["iptables"];
export type IpvsConfiguration = KubeProxyConfiguration["ipvs"];
export type NftablesConfiguration = KubeProxyConfiguration["nftables"];
type SyncPeriods = Pick<KubeProxyConfiguration["iptables"], "syncPeriod" | "minSyncPeriod">;

/** Fields of the file with their types and defaults, without `apiVersion` and `kind`. */
const CONFIGURATION_SCHEMA = v.object(ENTRIES, wanted("fields")) as v.GenericSchema<
  unknown,
  KubeProxyConfiguration
>;

/** A block that only some modes read. */
export type ConfigurationBlock = typeof MODE_TRAITS[BackendMode]["configurationBlock"];

/** The blocks with sync periods that a mode reads or, for `auto`, may read. */
export function blocksOf(mode: string): readonly ConfigurationBlock[] {
  if (mode === "auto") return ["iptables", "nftables"];
  const known = BACKEND_MODES.find((each) => each === mode) ?? "iptables";
  return [MODE_TRAITS[known].configurationBlock];
}

/** The sync periods of a mode. A mode without a block of its own shares that of iptables. */
export function syncPeriodsOf(
  configuration: KubeProxyConfiguration,
  mode: BackendMode,
): SyncPeriods {
  return configuration[MODE_TRAITS[mode].configurationBlock];
}

/** All fields as a tree; `undefined` stands for a value. */
export interface FieldTree {
  readonly [field: string]: FieldTree | undefined;
}

/** Names of all fields, to detect unknown ones. */
export const CONFIGURATION_FIELDS: FieldTree = {
  apiVersion: undefined,
  kind: undefined,
  ...fieldsOf(ENTRIES),
};

function fieldsOf(entries: v.ObjectEntries): FieldTree {
  return Object.fromEntries(
    Object.entries(entries).map(([name, schema]) => {
      const inner = "wrapped" in schema ? schema.wrapped as object : schema;
      const isGroup = "entries" in inner && inner.entries !== undefined;
      return [name, isGroup ? fieldsOf(inner.entries as v.ObjectEntries) : undefined];
    }),
  );
}

/** A field whose value has the wrong type. */
interface FieldProblem {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/**
 * Types the values of a file and fills in defaults. Shows no values of a file of another kind, since
 * they may be secret. `validate.ts` checks ranges and contradictions.
 */
export function parseConfiguration(
  value: unknown,
): { readonly configuration?: KubeProxyConfiguration; readonly problems: readonly FieldProblem[] } {
  const problems: FieldProblem[] = [];
  const { apiVersion, kind } = Object(value) as Record<string, unknown>;
  if (apiVersion !== API_VERSION) {
    problems.push(wrongIdentity("apiVersion", { found: apiVersion, wanted: API_VERSION }));
  }
  if (kind !== KIND) problems.push(wrongIdentity("kind", { found: kind, wanted: KIND }));
  if (problems.length > 0) return { problems };
  const result = v.safeParse(CONFIGURATION_SCHEMA, value);
  for (const issue of result.issues ?? []) {
    const path = (issue.path ?? []).map(({ key }) => key as string | number);
    problems.push({ path, message: issue.message });
  }
  return result.success ? { configuration: result.output, problems } : { problems };
}

/** The configuration of an empty file. */
export function defaultConfiguration(): KubeProxyConfiguration {
  return v.parse(CONFIGURATION_SCHEMA, {});
}

/** The blocks that kube-proxy does not know. */
type ExtensionBlock = "networkPolicy" | "routing";

/** Whether an extension has its default values. */
export function isDefaultBlock(
  configuration: KubeProxyConfiguration,
  block: ExtensionBlock,
): boolean {
  return JSON.stringify(configuration[block]) === JSON.stringify(defaultConfiguration()[block]);
}

/** The form of an API version or a kind; other text is not shown. */
const IDENTITY = /^(?:[a-z0-9.-]{1,60}\/)?v\d+(?:(?:alpha|beta)\d+)?$|^[A-Z][A-Za-z]{1,60}$/;

function wrongIdentity(
  field: "apiVersion" | "kind",
  { found, wanted }: { readonly found: unknown; readonly wanted: string },
): FieldProblem {
  const isShown = typeof found === "string" && IDENTITY.test(found);
  const text = isShown ? `'${found}'` : "something else";
  const what = found === undefined || found === null ? "nothing" : text;
  return { path: [field], message: `Expected '${wanted}', found ${what}` };
}

/**
 * Returns the configuration that flags override. It is that of an empty file, except for the
 * shortest time between two syncs of IPVS: kube-proxy uses 1s with flags and 0s with a file.
 */
export function flagConfiguration(): KubeProxyConfiguration {
  const configuration = defaultConfiguration();
  return { ...configuration, ipvs: { ...configuration.ipvs, minSyncPeriod: 1_000 } };
}

/**
 * Fills in the mode and upstream's platform defaults for it: in mode nftables, node ports on the
 * primary address only.
 */
export function effectiveConfiguration(
  configuration: KubeProxyConfiguration,
  mode: BackendMode,
): KubeProxyConfiguration {
  const nodePortAddresses = nodePortEntries(configuration.nodePortAddresses, mode);
  return Object.freeze({ ...configuration, mode, nodePortAddresses });
}

/** Whether the API server may send objects in protobuf; otherwise it sends JSON. */
export function acceptsProtobuf(
  { acceptContentTypes, contentType }: Pick<
    KubeProxyConfiguration["clientConnection"],
    "acceptContentTypes" | "contentType"
  >,
): boolean {
  const types = acceptContentTypes === "" ? contentType : acceptContentTypes;
  return types.split(",").some((type) =>
    type.split(";")[0]!.trim().toLowerCase() === "application/vnd.kubernetes.protobuf"
  );
}

/** Returns the value of a field such as `iptables.syncPeriod`. */
export function valueAt(configuration: object, field: string): unknown {
  return field.split(".").reduce<unknown>((block, name) => Object(block)[name], configuration);
}
