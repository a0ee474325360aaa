import type { ModeRequest } from "../../config/mode_request.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";

export interface DoctorProgram {
  readonly version: string;
  /** The compatible release of kube-proxy. */
  readonly kubeProxy: string;
  readonly deno: string;
  readonly platform: string;
}

/** The machine and the rights on it. */
export interface DoctorMachine {
  readonly hostname: string;
  readonly kernel?: string;
  readonly uid?: number;
  /** Capabilities of started tools; absent if unknown. */
  readonly capabilities?: readonly string[];
  /** Folders of `--tools-path`. */
  readonly toolsPath: readonly string[];
}

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
  readonly program: DoctorProgram;
  readonly machine: DoctorMachine;
  /** The source of the checked configuration, e.g. `the running process`. */
  readonly configuredBy: string;
  readonly modes: readonly DoctorMode[];
  readonly choice: DoctorChoice;
  readonly api: DoctorApi;
  readonly relay: DoctorRelay;
  /** The most severe first. */
  readonly findings: readonly HostFinding[];
}

/** The result of a part of the examination. */
export interface Examined<Fact> {
  readonly fact: Fact;
  readonly findings: readonly HostFinding[];
}

export interface KnownNode {
  readonly nodeAnnotations?: Readonly<Record<string, string>> | undefined;
}

const GRAVITY: readonly HostFinding["severity"][] = ["blocking", "warning", "info"];

/** Sorts by severity, the most severe first. */
export function byGravity(findings: readonly HostFinding[]): readonly HostFinding[] {
  return findings.toSorted((a, b) => GRAVITY.indexOf(a.severity) - GRAVITY.indexOf(b.severity));
}

/** Whether something prevents kube-relay from working here. */
export function isBlocked({ findings }: Pick<DoctorReport, "findings">): boolean {
  return findings.some(({ severity }) => severity === "blocking");
}
