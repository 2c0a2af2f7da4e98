/** Who may read /metrics. */
export const METRICS_ACCESS = ["local", "key", "open"] as const;
export type MetricsAccess = (typeof METRICS_ACCESS)[number];
