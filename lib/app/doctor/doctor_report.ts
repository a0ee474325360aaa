import type { ModeRequest } from "../../config/mode_request.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";

/** This program. */
export interface DoctorProgram {
  readonly version: string;
  /** Release of kube-proxy whose contract it keeps. */
  readonly kubeProxy: string;
  readonly deno: string;
  readonly platform: string;
}

/** The machine, and what we may do on it. */
export interface DoctorMachine {
  readonly hostname: string;
  readonly kernel?: string;
  readonly uid?: number;
  /** Of the tools that are started; absent where it could not be found out. */
  readonly capabilities?: readonly string[];
  /** Folders of `--tools-path`. */
  readonly toolsPath: readonly string[];
}

/** One mode. */
export interface DoctorMode {
  readonly mode: BackendMode;
  /** Whether this release has it. */
  readonly inRelease: boolean;
  /** IP families in which the host has all that it needs; empty: it cannot run here. */
  readonly families: readonly IpFamily[];
  /** What was tried. */
  readonly features: readonly ProbeResult[];
  /** Why nothing was tried, where that is so. */
  readonly notTried?: string;
}

/** The mode that a start would take now. */
export interface DoctorChoice {
  readonly request: ModeRequest;
  /** Absent: a start would fail. */
  readonly mode?: BackendMode;
  /** Why this one, one line each. */
  readonly reasons: readonly string[];
}

/** The API server. */
export interface DoctorApi {
  readonly state: "not configured" | "answers" | "unreachable" | "unusable";
  readonly detail: string;
}

/** A kube-relay that runs on this machine. */
export interface DoctorRelay {
  readonly state: "running" | "not running" | "unknown";
  readonly detail: string;
  /** The mode in which it runs. */
  readonly mode?: BackendMode;
}

/** Everything. */
export interface DoctorReport {
  readonly program: DoctorProgram;
  readonly machine: DoctorMachine;
  readonly modes: readonly DoctorMode[];
  readonly choice: DoctorChoice;
  readonly api: DoctorApi;
  readonly relay: DoctorRelay;
  /** The gravest first. */
  readonly findings: readonly HostFinding[];
}

/** What a part of the examination hands back. */
export interface Examined<Fact> {
  readonly fact: Fact;
  readonly findings: readonly HostFinding[];
}

/** What a part of the examination heard of the own Node. */
export interface KnownNode {
  readonly nodeAnnotations?: Readonly<Record<string, string>> | undefined;
}

const GRAVITY: readonly HostFinding["severity"][] = ["blocking", "warning", "info"];

/** The gravest first; what is of one weight keeps its order. */
export function byGravity(findings: readonly HostFinding[]): readonly HostFinding[] {
  return findings.toSorted((a, b) => GRAVITY.indexOf(a.severity) - GRAVITY.indexOf(b.severity));
}

/** Whether something has to be done before kube-relay can work here. */
export function isBlocked({ findings }: Pick<DoctorReport, "findings">): boolean {
  return findings.some(({ severity }) => severity === "blocking");
}
