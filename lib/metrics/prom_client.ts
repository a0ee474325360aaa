/**
 * The parts of prom-client that are used. Its main module also loads a push gateway, cluster support
 * and default metrics, with the HTTP client of Node: at each start, and for each verb.
 *
 * @module
 */
import type * as promClient from "prom-client";
import counter from "prom-client/lib/counter.js";
import gauge from "prom-client/lib/gauge.js";
import histogram from "prom-client/lib/histogram.js";
import registry from "prom-client/lib/registry.js";

export type Counter = promClient.Counter;
export const Counter = counter as typeof promClient.Counter;
export type Gauge = promClient.Gauge;
export const Gauge = gauge as typeof promClient.Gauge;
export type Histogram = promClient.Histogram;
export const Histogram = histogram as typeof promClient.Histogram;
export type Registry = promClient.Registry;
export const Registry = registry as typeof promClient.Registry;
