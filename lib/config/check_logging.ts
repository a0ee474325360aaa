import {
  type KubeProxyConfiguration,
  LOG_FORMATS,
  type LoggingConfiguration,
} from "./configuration.ts";
import { formatDuration } from "../api/duration.ts";
import { checkRange, type Expect } from "./expectation.ts";
import { featureEnabled } from "./feature_gates.ts";
import { didYouMean } from "../api/nearest_name.ts";

const LARGEST_VERBOSITY = 2 ** 31 - 1;

/** A Kubernetes quantity: a number with a decimal or binary suffix, or an exponent. */
const QUANTITY = /^[+-]?(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$/;

/** Checks the block `logging` by the rules of Kubernetes' component-base. */
export function checkLogging(configuration: KubeProxyConfiguration, expect: Expect): void {
  const { logging } = configuration;
  const { format, verbosity, flushFrequency } = logging;
  expect(
    LOG_FORMATS.includes(format),
    "logging.format",
    `Expected text or json, found '${format}'${didYouMean(format, LOG_FORMATS)}`,
  );
  expect(
    format !== "json" || featureEnabled(configuration, "LoggingBetaOptions"),
    "logging.format",
    "Expected text, since feature gate LoggingBetaOptions is off; found 'json'",
  );
  expect(
    flushFrequency > 0,
    "logging.flushFrequency",
    `Expected a time above 0, found ${formatDuration(flushFrequency)}`,
  );
  checkRange(expect, "logging.verbosity", { value: verbosity, from: 0, to: LARGEST_VERBOSITY });
  checkPatterns(logging, expect);
  checkOptions(configuration, expect);
}

function checkPatterns({ format, vmodule }: LoggingConfiguration, expect: Expect): void {
  expect(
    format !== "json" || vmodule.length === 0,
    "logging.vmodule",
    "Expected nothing together with logging.format json, found a list",
  );
  vmodule.forEach(({ filePattern, verbosity }, index) => {
    const path = `logging.vmodule.${index}`;
    expect(
      /^[^=,]+$/.test(filePattern),
      `${path}.filePattern`,
      `Expected a pattern without '=' and ',', found '${filePattern}'`,
    );
    checkRange(expect, `${path}.verbosity`, { value: verbosity, from: 0, to: LARGEST_VERBOSITY });
  });
}

function checkOptions(configuration: KubeProxyConfiguration, expect: Expect): void {
  const isOpen = featureEnabled(configuration, "LoggingAlphaOptions");
  for (const format of ["text", "json"] as const) {
    const { splitStream, infoBufferSize } = configuration.logging.options[format];
    const path = `logging.options.${format}`;
    const isQuantity = QUANTITY.test(infoBufferSize);
    expect(
      isQuantity,
      `${path}.infoBufferSize`,
      `Expected a quantity such as 0 or 64Ki, found '${infoBufferSize}'`,
    );
    const because = "since feature gate LoggingAlphaOptions is off";
    expect(
      isOpen || !splitStream,
      `${path}.splitStream`,
      `Expected false, ${because}; found true`,
    );
    expect(
      isOpen || !isQuantity || /^[+-]?[0.]+\D*$/.test(infoBufferSize),
      `${path}.infoBufferSize`,
      `Expected 0, ${because}; found ${infoBufferSize}`,
    );
  }
}
