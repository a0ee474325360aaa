/**
 * The tools that watch a run and answer questions about it, as `main.ts` hands them down.
 *
 * @module
 */
import type { Controller } from "../../engine/controller.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { ProblemKind } from "../../metrics/metric_table.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import type { ChangeListener } from "../change_listener.ts";
import type { CurrentConfiguration, Dependencies, RunConfiguration } from "../dependencies.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { ServiceController } from "../service/service_controller.ts";
import type { ObjectSource } from "./object_source.ts";
import type { EventLoopMonitor, ServiceManager } from "./service_manager.ts";
import type { StartUp } from "./start_up.ts";

/** The parts of a run that the tools read. */
export interface ObservedRun {
  readonly services: Pick<
    ServiceController,
    "families" | "hostSettings" | "node" | "primaryAddress" | "status"
  >;
  readonly others: readonly Controller[];
  readonly startUp: Pick<StartUp, "node">;
  readonly eventLoop: Pick<EventLoopMonitor, "largestMs">;
  readonly manager: Pick<ServiceManager, "phase">;
  readonly sources: readonly Pick<ObjectSource, "status">[];
  readonly configuration: RunConfiguration;
  /** The effective configuration: the file may have changed since the start. */
  readonly current: CurrentConfiguration;
  readonly informers: InformerSet;
  /** The traffic of each Service; absent where it is not counted. */
  readonly traffic: ServiceTrafficTable | undefined;
}

/** Answers a request for one of its pages; `undefined` for other paths. */
export type LocalPages = (
  request: Request,
  peer: IpAddress | undefined,
) => Promise<Response> | undefined;

/** The tools of one run. */
export interface RunTools {
  readonly changes: ChangeListener;
  /** The pages on the metrics port for clients on this machine; `undefined` if they are off. */
  pages(run: ObservedRun, signal: AbortSignal): LocalPages | undefined;
  /** The number of problems of each kind that `status` lists. */
  problems(run: ObservedRun): Promise<Readonly<Record<ProblemKind, number>>>;
  /** Opens the control socket. Rejects if it cannot be opened. */
  openControl(run: ObservedRun): Promise<{ stop(): Promise<void> }>;
}

/** The edges of the tools. */
export interface ToolEdges extends Dependencies {
  readonly logger: Logger;
  readonly openFiles: OpenFiles;
}

/** The edges of a run. */
export interface ProgramDependencies extends Dependencies {
  readonly createTools: (edges: ToolEdges) => RunTools;
}

/** The edges of a verb that asks a running process, or only prints. */
export type VerbEdges = Pick<
  Dependencies,
  "clock" | "complain" | "openTerminal" | "print" | "process"
>;

/** What `main.ts` hands down. */
export interface Machine extends VerbEdges {
  /** Loads the modules of everything else, which takes longer than most verbs. */
  readonly loadAll: () => Promise<Dependencies>;
}
