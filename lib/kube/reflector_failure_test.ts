import { assertEquals } from "@std/assert";
import { ApiError } from "./api_error.ts";
import { TransportError } from "./transport.ts";
import { KubeAuthError } from "./kube_identity.ts";
import { ListError } from "./list_page.ts";
import {
  type FailureContext,
  type FailureVerdict,
  judgeFailure,
  ShortWatchError,
  StalledListError,
} from "./reflector_failure.ts";
import { WatchStreamError } from "./watch_stream.ts";

const WATCH: FailureContext = {
  phase: "watch",
  fieldSelectorMayBeUnknown: false,
  optionalOn: [],
  failuresInARow: 1,
};
const STREAM: FailureContext = { ...WATCH, phase: "streaming list" };
const PAGES: FailureContext = { ...WATCH, phase: "paged list" };
const THIRD = { failuresInARow: 3 };

function answer(status: number, reason?: string): ApiError {
  return new ApiError(`Cannot: ${status} ${reason ?? ""}`, { status, reason });
}

const CASES: readonly (readonly [string, unknown, FailureContext, FailureVerdict])[] = [
  ["a watch from a forgotten version", answer(410, "Expired"), WATCH, "relist"],
  ["a watch that ends with reason Expired", answer(500, "Expired"), WATCH, "relist"],
  [
    "a watch from a version in the future",
    new ApiError("x", { status: 504, causes: ["ResourceVersionTooLarge"] }),
    WATCH,
    "relist",
  ],
  ["too many requests", answer(429), WATCH, "rewatch"],
  ["an unavailable server", answer(503), WATCH, "rewatch"],
  ["an unavailable server, again and again", answer(503), { ...WATCH, ...THIRD }, "rewatch"],
  ["an internal error", answer(500), WATCH, "rewatch"],
  ["the third internal error", answer(500), { ...WATCH, ...THIRD }, "relist"],
  ["no valid identity", answer(401), { ...WATCH, ...THIRD }, "rewatch"],
  ["no right", answer(403), { ...WATCH, ...THIRD }, "rewatch"],
  ["another refusal", answer(405), WATCH, "relist"],
  ["a broken connection", new TransportError("closed", "x"), { ...WATCH, ...THIRD }, "rewatch"],
  ["a frozen server", new TransportError("frozen", "x"), WATCH, "rewatch"],
  ["credentials that can't be read", new KubeAuthError("x"), { ...WATCH, ...THIRD }, "rewatch"],
  ["a watch that ends at once", new ShortWatchError("x"), { ...WATCH, ...THIRD }, "rewatch"],
  ["garbage in a watch", new WatchStreamError("x"), WATCH, "rewatch"],
  ["garbage at the same place three times", new WatchStreamError("x"), {
    ...WATCH,
    ...THIRD,
  }, "relist"],
  ["an error of our own", new TypeError("x"), WATCH, "relist"],
  ["a page that was cut short", new ListError("x"), PAGES, "relist"],
  ["a page of a list that is forgotten", answer(410), PAGES, "relist"],
  ["a streaming list that is not allowed", answer(422), STREAM, "list in pages"],
  ["a streaming list that is not understood", answer(400), STREAM, "list in pages"],
  ["a streaming list that old etcd refuses", answer(500), STREAM, "list in pages"],
  ["a streaming list that is expired", answer(410), STREAM, "list in pages"],
  ["a streaming list without an end", new StalledListError("x"), STREAM, "list in pages"],
  ["a streaming list of a busy server", answer(429), STREAM, "rewatch"],
  ["a streaming list of a starting server", answer(503), STREAM, "rewatch"],
  ["a streaming list without a right", answer(403), STREAM, "rewatch"],
  [
    "a streaming list over a broken connection",
    new TransportError("closed", "x"),
    STREAM,
    "rewatch",
  ],
  ["a field selector that is unknown", answer(400), {
    ...STREAM,
    fieldSelectorMayBeUnknown: true,
  }, "drop field selector"],
  ["a field selector that is unknown to a list", answer(400), {
    ...PAGES,
    fieldSelectorMayBeUnknown: true,
  }, "drop field selector"],
  ["an optional resource that is missing", answer(404), {
    ...STREAM,
    optionalOn: [403, 404],
  }, "unavailable"],
  ["an optional resource that we may not read", answer(403), {
    ...PAGES,
    optionalOn: [403, 404],
  }, "unavailable"],
  ["a resource that is missing and needed", answer(404), STREAM, "rewatch"],
];

for (const [name, error, context, verdict] of CASES) {
  Deno.test(`judgeFailure() says '${verdict}' for ${name}`, () => {
    assertEquals(judgeFailure(error, context), verdict);
  });
}
