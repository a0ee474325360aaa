/** kube-relay in a kernel mode, as the benchmarks start it. */
import { askControl } from "../../lib/tools/control/control_client.ts";
import type { StatusReport } from "../../lib/tools/status/status_report.ts";
import type { StatusFamily } from "../../lib/app/service/service_status.ts";
import type { BackendMode } from "../../lib/proxy/backend.ts";
import type { RawObject } from "../conformance/server.ts";
import { relayCommand, spawn } from "./forwarders.ts";
import { ownFlags } from "../support/drivers/own_flags.ts";

/** The figures of one sync. */
export type Sync = NonNullable<StatusFamily["lastSync"]>;

/** The options of the start. */
export interface BenchRelayOptions {
  /** For the control socket and the record of additions to the machine. */
  readonly folder: string;
  readonly mode: BackendMode;
  readonly kubeconfig: string;
  /** Shortest time between two syncs. @default {"10ms"} */
  readonly minSyncPeriod?: string;
  /** Further flags of the command line. @default {[]} */
  readonly flags?: readonly string[];
}

/** A running kube-relay. It ends with its scope. */
export interface BenchRelay extends AsyncDisposable {
  readonly pid: number;
  /** Returns the status, without Services. Throws if there is no answer. */
  status(): Promise<StatusReport>;
  /** The last sync of IPv4; `undefined` before the first one. */
  lastSync(): Promise<Sync | undefined>;
}

const NODE = "bench-node";
/** The range of pods. Other clients are masqueraded. */
const POD_CIDR = "10.0.0.0/9";
/** The range of cluster IPs. */
const SERVICE_CIDR = "10.128.0.0/16";

/** Starts it; it is on its way up when this returns. */
export function startBenchRelay(options: BenchRelayOptions): BenchRelay {
  // Changes follow each other faster in most benchmarks than the default lets syncs do.
  const { folder, mode, kubeconfig, minSyncPeriod = "10ms", flags = [] } = options;
  const { program, args } = relayCommand();
  const socket = `${folder}/control.sock`;
  const relay = spawn(program, [
    ...args,
    `--mode=${mode}`,
    `--hostname-override=${NODE}`,
    `--cluster-cidr=${POD_CIDR}`,
    `--iptables-min-sync-period=${minSyncPeriod}`,
    ...ownFlags(folder),
    `--kubeconfig=${kubeconfig}`,
    ...flags,
  ]);
  const status = () => askControl(socket, "/status", { brief: "" });
  const lastSync = async (): Promise<Sync | undefined> => {
    const { families = [] } = await status().catch(() => ({ families: undefined }));
    return families.find(({ family }) => family === "IPv4")?.lastSync;
  };
  return Object.assign(relay, { status, lastSync });
}

/** The Node that it runs on. */
export function benchNode(): RawObject {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: NODE },
    status: { addresses: [{ type: "InternalIP", address: "10.0.0.1" }] },
  };
}

/** The ServiceCIDR that an API server makes of its range of cluster IPs. */
export function benchServiceCidr(): RawObject {
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "ServiceCIDR",
    metadata: { name: "kubernetes" },
    spec: { cidrs: [SERVICE_CIDR] },
  };
}
