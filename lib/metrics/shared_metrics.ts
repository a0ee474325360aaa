/**
 * The metrics that every Kubernetes component gets from its shared libraries, unless they only
 * concern Go.
 *
 * @module
 */
import type { Metric } from "./metric.ts";

/** Rows by their name in the code. */
export const SHARED_METRICS = {
  kubernetesBuildInfo: {
    name: "kubernetes_build_info",
    type: "gauge",
    help: "Always 1. Labels: the compatible Kubernetes version and the version of kube-relay",
    labels: { major: ["1"], minor: ["36"], git_version: ["(version)"], platform: ["(platform)"] },
  },
  featureEnabled: {
    name: "kubernetes_feature_enabled",
    type: "gauge",
    help: "1 if the feature gate is on, 0 if it is off",
    labels: {
      name: ["(each gate of --feature-gates)"],
      stage: ["", "ALPHA", "BETA", "DEPRECATED"],
    },
  },
  apiRequests: {
    name: "rest_client_requests_total",
    type: "counter",
    help: "Requests to the API server, by status of the answer; `<error>` if there was none",
    labels: {
      code: ["(status)", "<error>"],
      method: ["GET", "POST", "PATCH"],
      host: ["(API server)"],
    },
    startsAtZero: false,
  },
  apiRequestDuration: {
    name: "rest_client_request_duration_seconds",
    type: "histogram",
    help: "Time until the API server's answer began, without watches",
    labels: { verb: ["GET", "POST", "PATCH"], host: ["(API server)"] },
    startsAtZero: false,
    buckets: [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60],
  },
  processCpu: {
    name: "process_cpu_seconds_total",
    type: "counter",
    help: "CPU time of the process in user and system mode",
  },
  processMemory: {
    name: "process_resident_memory_bytes",
    type: "gauge",
    help: "Resident memory of the process",
  },
  processMaxFds: {
    name: "process_max_fds",
    type: "gauge",
    help: "Limit of open files; 65536 if it cannot be read",
  },
  processStart: {
    name: "process_start_time_seconds",
    type: "gauge",
    help: "Unix time at which the process started",
  },
} as const satisfies Readonly<Record<string, Metric>>;
