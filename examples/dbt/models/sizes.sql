-- What every other model does: it builds on the newest release, and knows nothing of private rows.
SELECT step, count(*) AS records
FROM {{ ref("newest") }}
GROUP BY step
