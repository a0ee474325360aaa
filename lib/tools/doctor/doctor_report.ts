import type { Dependencies } from "../../app/dependencies.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { ModeRequest } from "../../config/load.ts";
import type { LogFields, Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";

export interface DoctorMode {
  readonly mode: BackendMode;
  readonly inRelease: boolean;
  /** IP families in which the mode works here. */
  readonly families: readonly IpFamily[];
  readonly features: readonly ProbeResult[];
  /** The reason why nothing was tried. */
  readonly notTried?: string;
}

/** The mode that a start would choose now. */
export interface DoctorChoice {
  readonly request: ModeRequest;
  /** Absent if a start would fail. */
  readonly mode?: BackendMode;
  /** One line each. */
  readonly reasons: readonly string[];
}

export interface DoctorApi {
  readonly state: "not configured" | "answers" | "unreachable" | "unusable";
  readonly detail: string;
}

/** The running kube-relay. */
export interface DoctorRelay {
  readonly state: "running" | "not running" | "unknown";
  readonly detail: string;
  readonly mode?: BackendMode;
  /** Present if it enforces NetworkPolicies. */
  readonly networkPolicy?: true;
}

export interface DoctorReport {
  readonly program: {
    readonly version: string;
    /** The compatible release of kube-proxy. */
    readonly kubeProxy: string;
    readonly deno: string;
    readonly platform: string;
  };
  /** The machine and the rights on it. */
  readonly machine: {
    readonly hostname: string;
    /** Folders of `--tools-path`. */
    readonly toolsPath: readonly string[];
    readonly kernel?: string;
    readonly uid?: number;
    /** Capabilities of started tools; absent if unknown. */
    readonly capabilities?: readonly string[];
  };
  /** The source of the checked configuration, e.g. `the running process`. */
  readonly configuredBy: string;
  readonly modes: readonly DoctorMode[];
  readonly choice: DoctorChoice;
  readonly api: DoctorApi;
  readonly relay: DoctorRelay;
  /** The most severe first. */
  readonly findings: readonly HostFinding[];
}

/** Whether something prevents kube-relay from working here. */
export function isBlocked({ findings }: Pick<DoctorReport, "findings">): boolean {
  return findings.some(({ severity }) => severity === "blocking");
}

/** What an examination works with. */
export interface Edges {
  readonly dependencies: Dependencies;
  readonly configuration: LoadedConfiguration;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** What later examinations know from the earlier ones. */
export interface Examined extends Edges {
  readonly machine: DoctorReport["machine"];
  readonly modes: readonly DoctorMode[];
  /** The mode of Services that a start would choose. */
  readonly mode: BackendMode | undefined;
  readonly relay: DoctorRelay;
  /** Annotations of the own Node, if known. */
  readonly nodeAnnotations: Readonly<Record<string, string>> | undefined;
}

/** One examination. Returns what it found. */
export type Examination = (
  examined: Examined,
) => readonly HostFinding[] | Promise<readonly HostFinding[]>;

/** A fact of the report with its findings. */
export interface Fact<T> {
  readonly fact: T;
  readonly findings: readonly HostFinding[];
  readonly nodeAnnotations?: Readonly<Record<string, string>> | undefined;
}

export interface CollectedLine {
  readonly message: string;
  readonly fields: LogFields;
}

/** Collects errors, warnings and infos, and prints nothing. */
export function collectingLogger(lines: CollectedLine[], own: LogFields = {}): Logger {
  const keep = (message: string, fields: LogFields = {}) =>
    void lines.push({ message, fields: { ...own, ...fields } });
  return {
    ...{ error: keep, warn: keep, info: keep },
    verbose: () => {},
    enabled: () => false,
    with: (fields) => collectingLogger(lines, { ...own, ...fields }),
  };
}
